"""Ingest: the rows of one batch into `events`, once.

The append carries (source, batch) as Delta's transaction id, so a replay is skipped by the
table itself. Rows get `_source`, `_batch` and `_tick`; the user's columns stay as they are,
timestamps without a zone being read as UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from warehouse import tables
from warehouse.create import column_types, concurrent_changes
from warehouse.errors import BatchMismatch, InputError
from warehouse.events import Batches
from warehouse.options import Options
from warehouse.storage import EVENTS, Store
from warehouse.ticks import NO_TICK

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# What a column may be read as without loss, beside its own type.
_WIDER = {
    "byte": {"short", "integer", "long"},
    "short": {"integer", "long"},
    "integer": {"long"},
    "float": {"double"},
    "timestamp_ntz": {"timestamp"},
}

_PARTS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")


def append_rows(store: Store, options: Options, rows: DataFrame, batch: Batches, step: int) -> None:
    """Appends the rows as that batch, unless `events` has it already.

    `step` is the tick where there is no time.
    """
    known = (
        options
        if options.columns
        else replace(options, columns=tuple(column_types(without_ntz(rows).schema).items()))
    )
    writer = (
        with_system_columns(known, rows, batch, step)
        .write.format("delta")
        .mode("append")
        .option("txnAppId", batch.source)
        .option("txnVersion", batch.first)
        .option("mergeSchema", str(not options.columns).lower())
    )
    concurrent = concurrent_changes()
    while True:
        try:
            writer.save(store.spark_path(EVENTS))
            return
        except concurrent:
            # Another loader of this very batch won, or one that brought the columns: look again.
            if has_batch(store, batch):
                return


def check_rows(options: Options, rows: DataFrame) -> None:
    """The rows have the warehouse's columns, in any order, of types that fit without loss."""
    columns = column_types(without_ntz(rows).schema)
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
    newest = tables.open_table(store, EVENTS).transaction_version(batch.source)
    return newest is not None and newest >= batch.first


def check_same_rows(
    spark: SparkSession, store: Store, options: Options, rows: DataFrame, batch: Batches
) -> None:
    """The batch in `events` has these very rows, in any order; BatchMismatch otherwise."""
    from pyspark.sql import functions as F

    names = [name for name, _ in options.columns]
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
    digest = F.xxhash64(F.to_json(F.struct(*[F.col(_quoted(name)) for name in frame.columns]), whole))
    sums = frame.select(digest.cast("decimal(38,0)").alias("digest"))
    found = sums.agg(
        F.count("*").alias("rows"), F.coalesce(F.sum("digest"), F.lit(0)).alias("digest")
    ).collect()[0]
    return {"rows": int(found["rows"]), "digest": int(found["digest"])}


def with_system_columns(options: Options, rows: DataFrame, batch: Batches, step: int) -> DataFrame:
    """The rows with `_source`, `_batch` and `_tick` in front, and the stored types."""
    from pyspark.sql import functions as F

    return _cast(options, rows).select(
        F.lit(batch.source).alias("_source"),
        F.lit(batch.first).cast("long").alias("_batch"),
        _tick(options, step).alias("_tick"),
        *[F.col(_quoted(name)) for name, _ in options.columns],
    )


def _tick(options: Options, step: int) -> Column:
    from pyspark.sql import functions as F

    if options.time is None:
        return F.lit(step).cast("long")
    name = _quoted(options.time)
    is_date = dict(options.columns).get(options.time) == "date"
    micros = f"unix_date({name}) * 86400000000L" if is_date else f"unix_micros({name})"
    width = f"{options.tick_us}L"
    return F.coalesce(F.expr(f"({micros} - pmod({micros}, {width})) div {width}"), F.lit(NO_TICK))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _cast(options: Options, rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    rows = without_ntz(rows)
    have, want = column_types(rows.schema), dict(options.columns)
    return rows.select(
        *[
            F.col(_quoted(name))
            if have[name] == kind
            else F.col(_quoted(name)).cast("int" if kind == "integer" else kind).alias(name)
            for name, kind in want.items()
        ]
    )


def without_ntz(rows: DataFrame) -> DataFrame:
    """Timestamps without a zone as UTC instants, whatever the session's zone is."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import TimestampNTZType

    zoneless = [field.name for field in rows.schema.fields if isinstance(field.dataType, TimestampNTZType)]
    for name in zoneless:
        # By parts: a cast or a difference would take the wall time through the session's zone, gaps and all.
        parts = ", ".join(f"extract({part} FROM {_quoted(name)})" for part in _PARTS)
        rows = rows.withColumn(name, F.expr(f"make_timestamp_ltz({parts}, 'UTC')"))
    return rows
