"""Change feeds (Debezium, Delta) as streams: each batch is a correction, named by its source and number.

    records    JSON objects as Debezium writes them, such as those of a Kafka topic, become rows in Spark's
               tasks (`parse_changes`); Delta's change feed has such rows already
    batch      the changes of a batch are netted, and one correction takes rows out and brings others
               (`FeedCorrections`)

Exactly once. The checkpoint has the offsets of a batch before it runs, so a batch that Spark repeats has the
same changes, and the correction of its name is known. A checkpoint that lacks batches which the warehouse has
is refused, as that of any stream. A change that cannot be made stops the stream: nothing of its batch is
done, and after the cause is gone the stream goes on with this batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from tidemark.warehouse.columns.schema import arrow_schema_of, ddl
from tidemark.warehouse.correct import Missing, correct
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import STEPS
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.events.reader import BULK
from tidemark.warehouse.events.steps import read_step_plans
from tidemark.warehouse.ingest.private_rows import as_text
from tidemark.warehouse.removals.change_feed import CHANGE, rows_of_records
from tidemark.warehouse.removals.reports import RemovalReport
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.sizes import Tuning

if TYPE_CHECKING:
    from datetime import timedelta

    from pyspark.sql import DataFrame, SparkSession


def parse_changes(records: DataFrame, options: Options) -> DataFrame:
    """Parses changes in JSON, as Debezium writes them, into the rows that `stream.start(changes=True)` takes.

    records   has the text or binary column `value`: an object with `op` (c, r, u, d), `before` and `after`,
              alone or in `payload`, with whole rows in `before`. NULL, as Kafka keeps of a row that left, is
              no change. And the column `position`, text for errors
    options   the options of the warehouse

    Returns the warehouse's columns and `_change_type`: an update is a row that leaves and one that comes.
    Raises InputError if the warehouse has no columns yet; a record that is no change stops the stream with
    its position.
    """
    from pyspark.sql import functions as F

    columns = [*options.given_columns.items()]
    if not columns:
        raise InputError("the warehouse has no columns yet. Create it with a schema, or load a batch first.")
    schema = as_text(arrow_schema_of(records.sparkSession, columns), options)
    given = records.select(F.col("value").cast("binary"), F.col("position").cast("string"))
    # mapInArrow fails for names with a dot or a backquote: the columns are c0, c1, ... until then.
    numbered = [(f"c{i}", kind) for i, (_, kind) in enumerate(columns)]
    rows = given.mapInArrow(_Changes(schema).parse, ddl([*numbered, (CHANGE, "string")]))
    return rows.select(*(F.col(f"c{i}").alias(name) for i, (name, _) in enumerate(columns)), CHANGE)


@dataclass(frozen=True)
class _Changes:
    """Changes in JSON as rows of `schema`, the warehouse's columns."""

    schema: pa.Schema

    def parse(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of records (value, position), with columns c0, c1, ... and the kind of the change."""
        for batch in batches:
            values, positions = (column.to_pylist() for column in batch.columns)
            named = [f"the record at {position}" for position in positions]
            rows, signs = rows_of_records([value or b"" for value in values], named, self.schema)
            kinds = pa.array(["insert" if sign > 0 else "delete" for sign in signs.tolist()], pa.string())
            names = [f"c{i}" for i in range(rows.num_columns)]
            yield pa.RecordBatch.from_arrays([*rows.columns, kinds], [*names, CHANGE])


@dataclass(frozen=True, slots=True)
class FeedCorrections:
    """The corrections of one stream of changes; see `warehouse.correct` for the options."""

    spark: SparkSession
    uri: str | os.PathLike[str]
    source: str
    missing: Missing
    ahead: str | timedelta | None
    storage_options: dict[str, str] | None
    tuning: Tuning | None

    def correct(self, changes: DataFrame, number: int) -> RemovalReport:
        """Makes the changes of the batch with this number, once."""
        return correct(
            self.spark,
            self.uri,
            batch=f"{self.source}/{number}",
            changes=changes,
            missing=self.missing,
            ahead=self.ahead,
            storage_options=self.storage_options,
            tuning=self.tuning,
        )


def newest_correction(store: Store, source: str) -> int:
    """The greatest number of a batch of this feed that the warehouse has; -1 without one."""
    start = f"{BULK}{source}/"
    plans = read_step_plans(store, tables.open_table(store, STEPS))
    sources = (part.source for plan in plans for part in plan.batches)
    numbers = (one.removeprefix(start) for one in sources if one.startswith(start))
    return max((int(number) for number in numbers if number.isdecimal()), default=-1)
