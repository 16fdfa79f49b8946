"""Creating a warehouse: the tables, and last of all `events` with the options, which makes it one."""

from __future__ import annotations

import time as clock
from typing import TYPE_CHECKING, Any, cast

from deltalake import DeltaTable
from pyarrow import fs

from warehouse import history, ledger, steps, tables
from warehouse.errors import InputError
from warehouse.events import GROUP_ROWS
from warehouse.measures import Measure
from warehouse.options import (
    DEFAULT_EPS,
    DEFAULT_GRACE,
    DEFAULT_KAPPA,
    DEFAULT_TICK,
    SYSTEM_COLUMNS,
    Options,
    parse_given,
)
from warehouse.storage import EVENTS, LEDGER, STEPS, Store
from warehouse.ticks import parse_duration

if TYPE_CHECKING:
    import os

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_CREATION_SECONDS = 10.0  # for another's creation to become a table; after that it is taken for killed
_HALF_MADE = {"DELTA_TABLE_NOT_FOUND", "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"}


def create(  # noqa: PLR0913  a warehouse is named by its options, all by keyword
    spark: SparkSession,
    uri: str | os.PathLike[str],
    measures: str | list[str] | None = None,
    *,
    key: str | None = None,
    time: str | None = None,
    tick: str | None = None,
    eps: float | None = None,
    kappa: int | None = None,
    grace: str | None = None,
    schema: StructType | DataFrame | str | None = None,
    storage_options: dict[str, str] | None = None,
) -> Options:
    """Makes a warehouse, or finds that the one there has these very options.

    measures  numeric columns that quantiles are asked of; one at least
    key       the column that frequencies are asked of
    time      a timestamp or date column; without it the tick is the step number
    tick      the grain of windows, default '1 day'
    eps       the promise, in (0, 0.5), default 0.001
    kappa     the merge threshold, at least 2, default 10
    grace     how long what readers may still see is kept, default '7 days'
    schema    the user's columns (a StructType, DDL text or a DataFrame); without it the first
              batch fixes them

    Raises InputError for a bad option, OptionsMismatch where the warehouse has others.
    """
    given = parse_given(measures, key, time, tick, eps, kappa, grace)
    store = Store.of(uri, storage_options)
    if tables.exists(store, EVENTS):
        options = read_options(store)
        options.check_same(given)
        return options
    if tables.exists(store, "."):
        raise InputError(
            f"{store.uri} is a Delta table itself. Expected a folder that is new or a warehouse."
        )
    options = _with_defaults(given)
    struct = None if schema is None else _struct(spark, schema)
    if struct is not None:
        columns = column_types(struct)
        options.check_columns(columns)
        for name in options.measure_names:
            history.create_tables(store, Measure(name, columns[name]))
    tables.create(store, STEPS, steps.SCHEMA)
    tables.create(store, LEDGER, ledger.SCHEMA)
    _create_events(spark, store, options, struct)
    options = read_options(store)
    options.check_same(given)  # somebody else may have made it meanwhile
    return options


def read_options(store: Store, events: DeltaTable | None = None) -> Options:
    """The options of the warehouse."""
    table = events or tables.open_table(store, EVENTS)
    columns = {field.name: _type_name(field.type) for field in table.schema().fields}
    return Options.from_properties(store.uri, table.metadata().configuration, columns)


def column_types(schema: StructType) -> dict[str, str]:
    """The columns' types by Delta's names, as a Spark schema says them."""
    names: dict[str, str] = {}
    for field in schema.fields:
        if any(name.lower() == field.name.lower() for name in names):
            raise InputError(
                f"the column {field.name!r} is there twice (upper and lower case are one). Rename it."
            )
        kind = field.dataType.jsonValue()
        names[field.name] = kind if isinstance(kind, str) else kind["type"]
    return names


def _type_name(kind: Any) -> str:
    return str(getattr(kind, "type", kind))


def _with_defaults(given: dict[str, Any]) -> Options:
    if given["measures"] is None:
        raise InputError("a warehouse needs at least one measure: measures=['column'], or --measure column.")
    if given["tick"] is not None and given["time"] is None:
        raise InputError(
            "tick was given without a time column. Name one, or leave tick out: steps are the ticks then."
        )
    tick_us = (given["tick"] or parse_duration(DEFAULT_TICK)) if given["time"] else None
    return Options(
        measure_names=tuple(given["measures"]),
        key=given["key"],
        time=given["time"],
        tick_us=tick_us,
        eps=DEFAULT_EPS if given["eps"] is None else given["eps"],
        kappa=DEFAULT_KAPPA if given["kappa"] is None else given["kappa"],
        grace_us=parse_duration(DEFAULT_GRACE) if given["grace"] is None else given["grace"],
    )


def _struct(spark: SparkSession, schema: StructType | DataFrame | str) -> StructType:
    """The schema as a StructType; timestamps without a zone are stored as UTC instants, see `ingest`."""
    from pyspark.sql.types import StructField, StructType, TimestampNTZType, TimestampType

    if isinstance(schema, str):
        schema = spark.createDataFrame([], schema)
    given = cast("StructType", getattr(schema, "schema", schema))
    return StructType(
        [
            StructField(field.name, TimestampType(), field.nullable, field.metadata)
            if isinstance(field.dataType, TimestampNTZType)
            else field
            for field in given.fields
        ]
    )


def _create_events(spark: SparkSession, store: Store, options: Options, schema: StructType | None) -> None:
    from delta.tables import DeltaTable as SparkDeltaTable
    from pyspark.errors import AnalysisException

    builder = SparkDeltaTable.createIfNotExists(spark).location(store.spark_path(EVENTS))
    for name, kind in SYSTEM_COLUMNS.items():
        builder = builder.addColumn(name, "bigint" if kind == "long" else kind)
    for field in schema.fields if schema else []:
        builder = builder.addColumn(field.name, field.dataType)
    properties = {
        **options.properties(),
        "delta.checkpointPolicy": "classic",
        "delta.enableDeletionVectors": "false",
        "delta.dataSkippingNumIndexedCols": str(32 + len(SYSTEM_COLUMNS)),
        "parquet.block.row.count.limit": str(GROUP_ROWS),
    }
    for name, value in properties.items():
        builder = builder.property(name, value)
    concurrent = concurrent_changes()
    patience = clock.monotonic() + _CREATION_SECONDS
    while not tables.exists(store, EVENTS):
        try:
            builder.execute()
        except concurrent:
            continue  # somebody else has just made it
        except AnalysisException as error:
            if error.getCondition() not in _HALF_MADE:
                raise
            # Somebody else is making it, or was killed while making it.
            if clock.monotonic() > patience and not _cleared(store):
                raise


def _cleared(store: Store) -> bool:
    """Removes what a killed creation left: hidden files alone, so no version of the table and no rows."""
    filesystem = store.filesystem()
    found = filesystem.get_file_info(fs.FileSelector(EVENTS, recursive=True, allow_not_found=True))
    if any(info.is_file and not info.base_name.startswith(".") for info in found):
        return False
    filesystem.delete_dir(EVENTS)
    return True


def concurrent_changes() -> tuple[type[Exception], ...]:
    """What Spark raises where another writer of a table came first; in Python these share no base.

    Called before the write: only once Delta's exceptions are imported does Spark raise them by these names.
    """
    from delta import exceptions

    return (
        exceptions.ConcurrentTransactionException,
        exceptions.ConcurrentWriteException,
        exceptions.MetadataChangedException,
        exceptions.ProtocolChangedException,
    )
