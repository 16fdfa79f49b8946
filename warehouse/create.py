"""Creating a warehouse: the tables, and last of all `events` with the options, which makes it one."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from deltalake import Field, Schema
from deltalake.schema import PrimitiveType
from pyarrow import fs

from tidemark.warehouse.columns.schema import column_types, delta_fields
from tidemark.warehouse.columns.ticks import parse_duration
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.commits import without_secrets
from tidemark.warehouse.delta.store import EVENTS, LEDGER, PARENTS, REJECTED, STEPS, Store
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.events import steps
from tidemark.warehouse.ingest import rejected
from tidemark.warehouse.ledger import ledger_rows
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.settings.option_checks import (
    DEFAULT_EPS,
    DEFAULT_KAPPA,
    DEFAULT_KEY_DELTA,
    DEFAULT_KEY_EPS,
    SYSTEM_COLUMNS,
    check_folders,
)
from tidemark.warehouse.settings.options import (
    DEFAULT_GRACE,
    DEFAULT_TICK,
    Options,
    parse_options,
    read_options,
)

if TYPE_CHECKING:
    import os

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_LOG = logging.getLogger("tidemark.create")


@report_os_errors("create")
def create(  # noqa: PLR0913  a warehouse is named by its options, all by keyword
    spark: SparkSession | None,
    uri: str | os.PathLike[str],
    measures: str | list[str] | None = None,
    *,
    key: str | None = None,
    time: str | None = None,
    tick: str | None = None,
    eps: float | None = None,
    kappa: int | None = None,
    grace: str | None = None,
    key_eps: float | None = None,
    key_delta: float | None = None,
    schema: StructType | DataFrame | pa.Schema | str | None = None,
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
    key_eps, key_delta
              a live count of a key errs by at most key_eps * m with probability 1 - key_delta; 0.01 each
    schema    the user's columns (a StructType, DDL text, a DataFrame, or a schema of pyarrow); without it
              the first batch fixes them. Spark is needed for DDL text alone

    Raises InputError for a bad option, OptionsMismatch where the warehouse has others.
    """
    given = parse_options(
        measures=measures,
        key=key,
        time=time,
        tick=tick,
        eps=eps,
        kappa=kappa,
        grace=grace,
        key_eps=key_eps,
        key_delta=key_delta,
    )
    store = Store.from_uri(uri, storage_options)
    store.check_place()
    if tables.exists(store, EVENTS):
        options = read_options(store)
        options.check_same(given)
        return options
    if tables.exists(store, "."):
        raise InputError(
            f"{store.uri} is a Delta table itself. Expected a folder that is new or a warehouse."
        )
    store.check_place(writing=True)
    for name in (EVENTS, STEPS, LEDGER, REJECTED, *PARENTS):
        store.check_log(name)
    _check_nobody_s(store)
    options = _with_defaults(given)
    fields = [] if schema is None else delta_fields(_struct(spark, schema))
    if schema is not None:
        columns = column_types(fields)
        options.check_columns(columns)
        for projection in replace(options, columns=tuple(columns.items())).projections:
            run_tables.create_tables(store, projection, options.grace_us)
    for name, schema_of in ((STEPS, steps.SCHEMA), (LEDGER, ledger_rows.SCHEMA), (REJECTED, rejected.SCHEMA)):
        tables.create(store, name, schema_of, grace_us=options.grace_us)
    system = [Field(name, PrimitiveType(kind)) for name, kind in SYSTEM_COLUMNS.items()]
    columns_of = Schema([*system, *fields])
    tables.create(store, EVENTS, columns_of, properties=options.properties(), grace_us=options.grace_us)
    options = read_options(store)
    options.check_same(given)  # somebody else may have made it meanwhile
    _LOG.info(
        "%s: created for %s",
        without_secrets(store.uri),
        ", ".join([*options.measure_names, *filter(None, [options.key])]),
    )
    return options


def _check_nobody_s(store: Store) -> None:
    """No file lies where `events` will be; what a killed creation left is no file of anybody's."""
    chosen = fs.FileSelector(EVENTS, recursive=True, allow_not_found=True)
    found = [info.path for info in store.filesystem().get_file_info(chosen) if info.is_file]
    theirs = [path for path in found if not path.startswith(f"{EVENTS}/_delta_log/")]
    if theirs and not tables.exists(store, EVENTS):
        raise InputError(
            f"{store.uri} is no warehouse, and holds other files: {theirs[0]}. Choose another folder."
        )


def _with_defaults(given: dict[str, Any]) -> Options:
    if given["measures"] is None:
        raise InputError("a warehouse needs at least one measure: measures=['column'], or --measure column.")
    check_folders(given["measures"])
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
        key_eps=DEFAULT_KEY_EPS if given["key_eps"] is None else given["key_eps"],
        key_delta=DEFAULT_KEY_DELTA if given["key_delta"] is None else given["key_delta"],
    )


def _struct(
    spark: SparkSession | None, schema: StructType | DataFrame | pa.Schema | str
) -> StructType | pa.Schema:
    if isinstance(schema, pa.Schema):
        return schema
    if isinstance(schema, str):
        if spark is None:
            raise InputError(f"the schema {schema!r} is text, which Spark reads: give a session, got None.")
        schema = spark.createDataFrame([], schema)
    return cast("StructType", getattr(schema, "schema", schema))
