"""Ingest: the rows of one batch into `events`, once.

Spark's tasks write the rows as they come, one file a task, and one commit adds them all. It carries
(source, batch) as the table's application transaction and succeeds only as the very next version,
so a batch that comes again, or twice at once, finds itself there.
"""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction

from warehouse import tables
from warehouse.commits import contend
from warehouse.create import read_options
from warehouse.errors import BatchMismatch, InputError
from warehouse.events import Batches
from warehouse.options import Options
from warehouse.rowfiles import WRITTEN, NewRows, WriteRows
from warehouse.schema import column_types, delta_fields, quoted
from warehouse.sieve import TAKE_ALL, Sieve
from warehouse.storage import EVENTS, REJECTED, Store
from warehouse.summaries import TickSummary, by_tick
from warehouse.tasks import saying_why

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# What a column may be read as without loss, beside its own type.
_WIDER = {
    "byte": {"short", "integer", "long"},
    "short": {"integer", "long"},
    "integer": {"long"},
    "float": {"double"},
}

TOLD = ("_position", "_raw", "_reason")  # what a parser tells of a record beside its columns

_PARTS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")


@dataclass(slots=True)
class Appended:
    """What an append did: how many rows were taken and refused, and the summaries of those taken.

    `outcome` is 'known' where `events` had the batch already, or a later one of its source: then nothing is
    known of its rows. `nulls` says in how many of the rows taken each column is NULL, of those that are so
    in any. `after` is the newest batch of the source that `events` had before; -1 where there was none.
    """

    outcome: Literal["appended", "known", "empty"]
    rows: int = 0
    rejected: int = 0
    summaries: list[TickSummary] = field(default_factory=list)
    nulls: dict[str, int] = field(default_factory=dict)
    after: int = -1


def append_rows(
    store: Store,
    rows: DataFrame,
    batch: Batches,
    step: int,
    *,
    eps: float | None = None,
    sieve: Sieve = TAKE_ALL,
    check: Callable[[Appended], None] = lambda _: None,
) -> Appended:
    """Appends the rows as that batch, unless `events` has it already, or a later one of its source.

    A warehouse without columns gets those of the rows first. `step` is the tick where there is no
    time. With `eps` it is a batch of a stream: its rows are summarised on the way, and its number is
    committed though there are no rows. What the sieve keeps back goes to `rejected`, once. `check` is told
    what is about to be committed and may refuse it, by an error.
    """

    def attempt() -> Appended:
        events = tables.open_table(store, EVENTS)
        options = read_options(store, events)
        check_rows(options, rows, sieve)
        new = [] if options.columns else delta_fields(_own(rows, sieve).schema)
        known = replace(options, columns=tuple(column_types(new).items())) if new else options
        schema = pa.schema(Schema([*events.schema().fields, *new]))
        done, files, refused = _write(store, known, schema, rows, batch, step, eps, sieve)
        check(done)
        if refused:
            _reject(store, batch, refused)
        if not files and eps is None:
            return done
        if new and files:
            tables.add_columns(events, new)  # a lost race: another first batch has brought its columns
        if not _commit(store, batch, files, done):
            done.outcome = "known"
        return done

    return contend(EVENTS, attempt)


def try_rows(store: Store, rows: DataFrame, batch: Batches, step: int, sieve: Sieve) -> Appended:
    """What an append of the rows would do; nothing is committed."""
    events = tables.open_table(store, EVENTS)
    schema = pa.schema(events.schema())
    return _write(store, read_options(store, events), schema, rows, batch, step, None, sieve)[0]


def _commit(store: Store, batch: Batches, files: list[AddAction], done: Appended) -> bool:
    def actions(table: DeltaTable) -> list[AddAction]:
        done.after = tables.newest_transaction(table, batch.source)
        return files

    return tables.commit_once(store, EVENTS, batch.source, batch.first, actions)


def _reject(store: Store, batch: Batches, files: list[AddAction]) -> None:
    source, number = batch.source, batch.first
    tables.commit_once(
        store, REJECTED, source, number, lambda _: files, known=lambda table: has_rejected(table, batch)
    )


def has_rejected(table: DeltaTable, batch: Batches) -> bool:
    """Whether `rejected` has records of the batch."""
    return any(
        file.stats["min.source"] == batch.source and file.stats["min.batch"] == batch.first
        for file in tables.files(table)
    )


def _write(
    store: Store,
    options: Options,
    schema: pa.Schema,
    rows: DataFrame,
    batch: Batches,
    step: int,
    eps: float | None,
    sieve: Sieve,
) -> tuple[Appended, list[AddAction], list[AddAction]]:
    """Writes the files of the rows, and of those refused; their add actions."""
    work = WriteRows(store, schema, batch, options, step, sieve, eps)
    # mapInArrow looks columns up by name, and does not find those with a dot or a backquote in theirs.
    typed = _cast(options, rows, list(TOLD) if sieve.reasons else [])
    typed = typed.toDF(*[f"c{i}" for i in range(len(typed.columns))])
    with saying_why():
        found = typed.mapInArrow(work, WRITTEN).collect()
    files = {kind: [NewRows(*one[1:6]) for one in found if one.kind == kind] for kind in (EVENTS, REJECTED)}
    counts = {kind: sum(one.rows for one in files[kind]) for kind in files}
    told = [pickle.loads(one.summaries) for one in found if one.summaries is not None]  # noqa: S301  our own
    done = Appended(
        outcome="appended" if counts[EVENTS] else "empty",
        rows=counts[EVENTS],
        rejected=counts[REJECTED],
        summaries=by_tick(chain.from_iterable(told), eps or 0.0),
        nulls=dict(sum((Counter(json.loads(one.nulls)) for one in files[EVENTS]), Counter())),
    )
    return done, [one.action() for one in files[EVENTS]], [one.action() for one in files[REJECTED]]


def _own(rows: DataFrame, sieve: Sieve) -> DataFrame:
    """The rows without what is told of their records."""
    return rows.drop(*TOLD) if sieve.reasons else rows


def check_rows(options: Options, rows: DataFrame, sieve: Sieve = TAKE_ALL) -> None:
    """The rows have the warehouse's columns, in any order, of types that fit without loss."""
    rows = _own(rows, sieve)
    columns = column_types(delta_fields(rows.schema))
    if not options.columns:
        options.check_columns(columns)
        return
    stored = dict(options.columns)
    options.check_columns({name: stored.get(name, kind) for name, kind in columns.items()})
    missing, unknown = sorted(set(stored) - set(columns)), sorted(set(columns) - set(stored))
    if missing or unknown:
        raise InputError(f"the columns differ from the warehouse's: missing {missing}, unknown {unknown}.")
    for name, kind in columns.items():
        if kind != stored[name] and stored[name] not in _WIDER.get(kind, set()):
            raise InputError(
                f"column {name!r} is {kind}, the warehouse has {stored[name]}. Cast it in the input."
            )


def has_batch(store: Store, batch: Batches) -> bool:
    """Whether `events` holds the batch."""
    return tables.has_transaction(tables.open_table(store, EVENTS), batch.source, batch.first)


def check_same_rows(
    spark: SparkSession, store: Store, options: Options, rows: DataFrame, batch: Batches
) -> None:
    """The batch in `events` has these very rows, in any order; BatchMismatch otherwise."""
    from pyspark.sql import functions as F

    names = [name for name, _ in options.columns]
    tables.check_inside(store, EVENTS)  # Spark would follow any path
    events = spark.read.format("delta").load(store.spark_path(EVENTS))
    stored = events.where(
        (F.col("_source") == batch.source) & F.col("_batch").between(batch.first, batch.last)
    )
    here = stored.select(names)
    given = _cast(options, rows).select(names)
    was, now = _fingerprint(here), _fingerprint(given)
    if was != now:
        detail = f"{was['rows']} rows are stored, {now['rows']} came"
        if was["rows"] == now["rows"]:
            detail += ", and their content differs"
        raise BatchMismatch(
            f"batch {batch.source!r} was loaded before with other rows: {detail}. "
            "Nothing was changed. Load new rows under a new batch name."
        )


def _fingerprint(frame: DataFrame) -> Mapping[str, int]:
    from pyspark.sql import functions as F

    # JSON text is the same for the same row whatever the column types, maps and structs included;
    # its times are cut to milliseconds unless it is told otherwise.
    whole = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
    digest = F.xxhash64(F.to_json(F.struct(*[F.col(quoted(name)) for name in frame.columns]), whole))
    sums = frame.select(digest.cast("decimal(38,0)").alias("digest"))
    found = sums.agg(
        F.count("*").alias("rows"), F.coalesce(F.sum("digest"), F.lit(0)).alias("digest")
    ).collect()[0]
    return {"rows": int(found["rows"]), "digest": int(found["digest"])}


def _cast(options: Options, rows: DataFrame, others: Sequence[str] = ()) -> DataFrame:
    """The warehouse's columns, in its order and types, then the others as they are."""
    from pyspark.sql import functions as F

    have = column_types(delta_fields(rows.drop(*others).schema))
    want = dict(options.columns)
    rows = _without_ntz(rows)
    return rows.select(
        *[
            F.col(quoted(name))
            if have[name] == kind
            else F.col(quoted(name)).cast("int" if kind == "integer" else kind).alias(name)
            for name, kind in want.items()
        ],
        *others,
    )


def _without_ntz(rows: DataFrame) -> DataFrame:
    """Timestamps without a zone as UTC instants, whatever the session's zone is."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import TimestampNTZType

    zoneless = [field.name for field in rows.schema.fields if isinstance(field.dataType, TimestampNTZType)]
    for name in zoneless:
        # By parts: a cast or a difference would take the wall time through the session's zone, gaps and all.
        parts = ", ".join(f"extract({part} FROM {quoted(name)})" for part in _PARTS)
        rows = rows.withColumn(name, F.expr(f"make_timestamp_ltz({parts}, 'UTC')"))
    return rows
