"""Certificates of purges: that rows left every table, and that no file of the warehouse has them any more.

The table `purges` comes with the first purge. Each row has a certificate at one stage, as JSON; the newest
stage of an id holds. A certificate has counts and versions, and nothing of the rows: no condition, no value,
no hash.

The commit that takes records out of the table `rejected` notes them, and a certificate counts the records
that were noted between the previous certificate's fence and its own. So the records of a purge that was
interrupted are counted by the next one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

import pyarrow as pa
from deltalake import DeltaTable

from tidemark.warehouse.delta import data_files, table_open, tables
from tidemark.warehouse.delta.fences import has_fence, read_actions
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import PURGES, REJECTED
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.events.removals import NONE

SCHEMA = pa.schema(
    [
        ("purge", pa.string()),
        ("stage", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("content", pa.string()),
    ]
)
PURGED_RECORDS = "tidemark.purged_records"  # of a commit to `rejected`: see `note_of`
Records = tuple[tuple[str, int, int], ...]  # how many, by source and batch
OUTSIDE = (
    "copies and backups of the warehouse, and versions that an object store keeps of deleted objects",
    "the files and topics that the rows came from",
    "tables, logs and files of other tools, such as Spark's checkpoints, event logs and shuffle files",
    "caches of readers: memory, and folders that were given as cache",
    "temporary folders of processes that were killed",
    "names of batches, sources and requests, which the callers chose",
)


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is certified of a purge.

    id         of the purge
    stage      'left': no table names the rows from `versions` on; 'gone': no file of the warehouse has them
    request    the caller's name of the call; None without one
    removal    the number of the removal that took the rows; None if none of history matched
    rows       the rows that this removal took
    records    the records that left the table `rejected` since the purge before, by source and batch
    up_to      the removals up to this number are purged with it; -1 if there never was one
    step       the newest step of history then; -1 for none
    left_at    when the rows had left, as ISO text in UTC
    versions   by table, the version from which on it names no file with the rows
    before     the number of files of the warehouse then
    gone_at    when the listing was made, as ISO text in UTC; None at the stage 'left'
    deleted    how many of the files from before are there no more
    listing    by table, the number of files that are there; files of no table are counted under ''
    waits      why the rows are not gone yet, by the last look; it is not stored
    outside    what no purge of a warehouse reaches
    """

    id: str
    stage: Literal["left", "gone"]
    request: str | None
    removal: int | None
    rows: int
    records: Records
    up_to: int
    step: int
    left_at: str
    versions: Mapping[str, int]
    before: int
    gone_at: str | None = None
    deleted: int = 0
    listing: Mapping[str, int] | None = None
    waits: tuple[str, ...] = ()
    outside: tuple[str, ...] = OUTSIDE

    @property
    def left_ms(self) -> int:
        """When the rows had left, in milliseconds since 1970."""
        return int(datetime.fromisoformat(self.left_at).timestamp() * 1000)

    def to_json(self) -> dict[str, Any]:
        """The certificate as a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Certificate:
        """The certificate of a JSON object; KeyError, TypeError or ValueError if the text has none."""
        records = tuple((str(source), int(batch), int(count)) for source, batch, count in given["records"])
        texts = {name: tuple(map(str, given[name])) for name in ("waits", "outside")}
        return cls(**{**given, **texts, "records": records})


def now() -> str:
    """The time as certificates have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def commit_certificate(store: Store, certificate: Certificate) -> Certificate:
    """Adds the certificate to the table, and returns it; nothing is added if its stage is there.

    At the stage 'left' it gets the records that left since the existing certificates.
    """
    race = Race(store, PURGES)
    while True:
        known = data_files.read(store, PURGES, race.table)
        places = zip(known.column("purge").to_pylist(), known.column("stage").to_pylist(), strict=True)
        if (certificate.id, certificate.stage) in places:
            return certificate
        if certificate.stage == "left":
            before = read_certificates(store, race.table)
            records = _records_since(store, before, certificate.versions.get(REJECTED, -1))
            certificate = replace(certificate, records=records)
        added = pa.Table.from_pylist([_row(certificate)], schema=SCHEMA)
        rows, replaced = data_files.rows_and_replaced(store, PURGES, race.table, added)
        if race.commit(data_files.append_actions(store, PURGES, rows, replaces=replaced)):
            return certificate


def _row(certificate: Certificate) -> dict[str, Any]:
    at = certificate.gone_at or certificate.left_at
    return {
        "purge": certificate.id,
        "stage": certificate.stage,
        "at": datetime.fromisoformat(at),
        "content": json.dumps(replace(certificate, waits=()).to_json(), ensure_ascii=False),
    }


def read_certificates(store: Store, table: DeltaTable | None = None) -> list[Certificate]:
    """The certificates of all purges, each at its newest stage, by the time when the rows left.

    DamagedWarehouse if one cannot be read.
    """
    if table is None:
        (table,) = tables.find_tables(store, PURGES)
    found: dict[str, Certificate] = {}
    if table is not None:
        for text in data_files.read(store, PURGES, table).column("content").to_pylist():
            try:
                one = Certificate.from_json(json.loads(text))
            except (KeyError, TypeError, ValueError) as error:
                raise DamagedWarehouse(f"a row of the table {PURGES} is no certificate: {error}") from error
            if one.id not in found or one.stage == "gone":
                found[one.id] = one
    return sorted(found.values(), key=lambda one: (one.left_at, one.id))


def purged_up_to(store: Store) -> int:
    """The removals up to this number are purged; NONE before the first purge that had any."""
    return max((one.up_to for one in read_certificates(store)), default=NONE)


def purged_records(store: Store, batch: BatchRange) -> int:
    """How many records of the batch purges took out of the table `rejected`."""
    (table,) = tables.find_tables(store, PURGES)
    if table is None or not table_open.exists(store, REJECTED):
        return 0
    certified = read_certificates(store, table)
    newest = tables.open_table(store, REJECTED).version()
    records = [one.records for one in certified] + [_records_since(store, certified, newest)]
    return sum(count for part in records for source, number, count in part if batch.holds(source, number))


def note_of(records: Records) -> dict[str, str]:
    """The note of a commit that takes these records out of `rejected`."""
    return {PURGED_RECORDS: json.dumps(records, ensure_ascii=False)}


def _records_since(store: Store, certified: Iterable[Certificate], newest: int) -> Records:
    """The notes of commits to `rejected` after the fences of these certificates, up to a version."""
    fences = [(one.versions[REJECTED], one.id) for one in certified if REJECTED in one.versions]
    since = max((at for at, purge in fences if has_fence(store, REJECTED, at, purge)), default=-1)
    found = Counter[tuple[str, int]]()
    for version in range(since + 1, newest + 1):
        try:
            actions = read_actions(store, REJECTED, version)
        except FileNotFoundError:
            continue  # the log was cut
        notes = (one["commitInfo"].get(PURGED_RECORDS, "[]") for one in actions if "commitInfo" in one)
        for source, batch, count in (record for note in notes for record in json.loads(note)):
            found[source, batch] += count
    return tuple((source, batch, count) for (source, batch), count in sorted(found.items()))
