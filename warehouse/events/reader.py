"""Reading `events` without a JVM: the values or the keys of given batches, in bounded pieces.

Loads sort these rows, streams sketch them, exact answers count them: all through `read_decoded_rows`,
so a value is stored, sketched and counted as the same number. Files are pruned by their
statistics, rows are always told by their own `_source` and `_batch`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from numpy.typing import NDArray
from pyarrow import fs

from tidemark.warehouse.columns.arrow_types import with_plain_types
from tidemark.warehouse.columns.keys import Key, KeyColumn, encode_keys
from tidemark.warehouse.columns.measures import DecodedColumn, Measure, as_numpy, encode_values, single_array
from tidemark.warehouse.delta.store import EVENTS
from tidemark.warehouse.delta.tables import DataFile, list_files
from tidemark.warehouse.integrity.sealed_files import open_sealed
from tidemark.warehouse.os_errors import report_unreadable_file


@dataclass(frozen=True, slots=True, order=True)
class BatchRange:
    """The batches first..last, both inclusive, of one source."""

    source: str
    first: int
    last: int

    @property
    def text(self) -> str:
        """The batches in words."""
        if self.first == self.last:
            return f"batch {self.first} of {self.source!r}"
        return f"batches {self.first} to {self.last} of {self.source!r}"

    def holds(self, source: str, batch: int) -> bool:
        """Whether the batch is one of these."""
        return source == self.source and self.first <= batch <= self.last

    def within(self, other: BatchRange) -> bool:
        """Whether all of these are in the other range."""
        return self.source == other.source and other.first <= self.first and self.last <= other.last


@dataclass(frozen=True, slots=True)
class EventRowGroups:
    """Some row groups of one file of events (None: all of them), about `rows` rows."""

    path: str
    groups: tuple[int, ...] | None
    rows: int

    @classmethod
    def whole_file(cls, file: DataFile) -> EventRowGroups:
        """All of a file."""
        return cls(f"{EVENTS}/{file.path}", None, file.rows)


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """Decoded rows: the tick, each measure's column, and the key where it is asked for; all of one length."""

    ticks: NDArray[np.int64]
    columns: tuple[DecodedColumn, ...]
    keys: KeyColumn | None = None


def files_of_batches(table: DeltaTable, batches: Iterable[BatchRange]) -> list[DataFile]:
    """The files of `events` that may hold rows of the batches."""
    wanted = list(batches)
    return [file for file in list_files(table) if any(_may_hold(file, one) for one in wanted)]


def _may_hold(file: DataFile, batches: BatchRange) -> bool:
    low, high = file.stats.get("min._batch"), file.stats.get("max._batch")
    if low is not None and high is not None and (high < batches.first or low > batches.last):
        return False
    # Long text is cut in statistics, but always to a bound below and a bound above.
    least, most = file.stats.get("min._source"), file.stats.get("max._source")
    return least is None or most is None or least <= batches.source <= most or batches.source.startswith(most)


def split_row_groups(
    filesystem: fs.FileSystem, found: Sequence[DataFile], rows: int
) -> list[list[EventRowGroups]]:
    """The files' row groups in lists of at most about `rows` rows: one list a task."""
    shares: list[EventRowGroups] = []
    for file in found:
        whole = EventRowGroups.whole_file(file)
        if 0 <= file.rows <= rows:
            shares.append(whole)
            continue
        with report_unreadable_file(whole.path):
            metadata = pq.read_metadata(whole.path, filesystem=filesystem)
        counts = [metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)]
        shares.extend(EventRowGroups(whole.path, (g,), count) for g, count in enumerate(counts))
    lists: list[list[EventRowGroups]] = []
    held = 0
    for share in shares:
        if not lists or held + share.rows > rows:
            lists.append([])
            held = 0
        lists[-1].append(share)
        held += share.rows
    return lists


def read_decoded_rows(
    filesystem: fs.FileSystem,
    shares: Iterable[EventRowGroups],
    measures: Sequence[Measure],
    batches: Sequence[BatchRange],
    key: Key | None = None,
) -> Iterator[DecodedRows]:
    """The batches' rows of the shares, decoded, a row group at a time."""
    names = [*(measure.name for measure in measures), *([key.name] if key else [])]
    texts = [key.name] if key and key.is_text else []
    for rows in read_event_rows(filesystem, shares, names, batches, texts):
        yield decode_rows(rows, measures, key)


def read_event_rows(
    filesystem: fs.FileSystem,
    shares: Iterable[EventRowGroups],
    columns: Iterable[str],
    batches: Sequence[BatchRange],
    texts: Sequence[str] = (),
    *,
    checksums: bool = False,
) -> Iterator[pa.Table]:
    """The batches' rows, a row group at a time: `_tick` and the columns, `texts` as dictionaries.

    What is read of a file of ours is compared with its seal; with `checksums` its pages are, too.
    """
    names = list(dict.fromkeys(["_tick", *columns]))
    for share in shares:
        with open_sealed(filesystem, share.path, texts=texts, checksums=checksums) as file:
            for group in range(file.metadata.num_row_groups) if share.groups is None else share.groups:
                held = _group_held(file.metadata.row_group(group), batches)
                if held == "none":
                    continue
                wanted = names if held == "all" else list(dict.fromkeys([*names, "_source", "_batch"]))
                table = with_plain_types(file.read_group(group, wanted), texts)
                rows = table if held == "all" else table.filter(_of_batches(table, batches))
                if rows.num_rows:
                    yield rows.unify_dictionaries().combine_chunks() if texts else rows.combine_chunks()


def rows_by_batch(filesystem: fs.FileSystem, table: DeltaTable, batches: BatchRange) -> Counter[int]:
    """How many rows of `events` each of the batches has, of those that have any.

    The statistics of a file tell it where it holds one batch; the columns of other files are read.
    """
    counts: Counter[int] = Counter()
    mixed = []
    for file in files_of_batches(table, [batches]):
        names = {file.stats.get(f"{end}._source") for end in ("min", "max")}
        numbers = {file.stats.get(f"{end}._batch") for end in ("min", "max")}
        number = file.stats.get("min._batch")
        if names == {batches.source} and number is not None and numbers == {number} and file.rows >= 0:
            counts[number] += file.rows
        else:
            mixed.append(EventRowGroups.whole_file(file))
    for (_, batch), rows in count_rows(filesystem, mixed, [batches]).items():
        counts[batch] += rows
    return counts


def count_rows(
    filesystem: fs.FileSystem, shares: Iterable[EventRowGroups], batches: Sequence[BatchRange]
) -> Counter[tuple[str, int]]:
    """How many rows the shares have of each (source, batch), of the batches given; every row is read."""
    names = ["_source", "_batch"]
    counts: Counter[tuple[str, int]] = Counter()
    for rows in read_event_rows(filesystem, shares, names, batches):
        for group in rows.group_by(names).aggregate([([], "count_all")]).to_pylist():
            counts[group["_source"], group["_batch"]] += group["count_all"]
    return counts


def _group_held(group: pq.RowGroupMetaData, batches: Sequence[BatchRange]) -> Literal["all", "some", "none"]:
    """How many of a row group's rows the batches have, as far as its statistics tell.

    Parquet's statistics, unlike Delta's, hold text whole. Most row groups are of one batch, and
    then the two columns that name it need not be read.
    """
    source, number = (_range(group, name) for name in ("_source", "_batch"))
    if source is None or number is None:
        return "some"
    near = [one for one in batches if source[0] <= one.source <= source[1]]
    near = [one for one in near if number[0] <= one.last and one.first <= number[1]]
    if not near:
        return "none"
    whole = source[0] == source[1] and any(one.first <= number[0] and number[1] <= one.last for one in near)
    return "all" if whole else "some"


def _range(group: pq.RowGroupMetaData, name: str) -> tuple[Any, Any] | None:
    """The least and the greatest value of a column that has no NULL; None where that is not known."""
    found = next((c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == name), None)
    stats = found.statistics if found is not None else None
    if stats is None or not stats.has_min_max or not stats.has_null_count or stats.null_count:
        return None
    return stats.min, stats.max


def decode_rows(rows: pa.Table, measures: Sequence[Measure], key: Key | None = None) -> DecodedRows:
    """The measures' columns, the keys and the ticks of rows of `events`."""
    columns = tuple(encode_values(measure, single_array(rows.column(measure.name))) for measure in measures)
    keys = encode_keys(key, single_array(rows.column(key.name))) if key else None
    return DecodedRows(as_numpy(rows.column("_tick")), columns, keys)


def _of_batches(table: pa.Table, batches: Sequence[BatchRange]) -> pa.ChunkedArray:
    source, number = table.column("_source"), table.column("_batch")
    wanted = None
    for one in batches:
        here = pc.and_(
            pc.equal(source, one.source),
            pc.and_(pc.greater_equal(number, one.first), pc.less_equal(number, one.last)),
        )
        wanted = here if wanted is None else pc.or_(wanted, here)
    return wanted if wanted is not None else pc.less(number, number)
