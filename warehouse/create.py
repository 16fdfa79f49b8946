"""Creates a warehouse: all tables, `events` last.

`events` carries the options, and a folder is a warehouse only once `events` exists. So a creation that was
killed leaves no warehouse, and creating it again continues. Two creations at once with the same options both
succeed; with other options, the later one raises OptionsMismatch.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from deltalake import Field, Schema
from deltalake.schema import PrimitiveType
from pyarrow import fs

from tidemark.warehouse.columns.schema import column_types, delta_fields
from tidemark.warehouse.columns.ticks import MONDAY_US, WEEK_US, parse_duration
from tidemark.warehouse.delta import opening, tables
from tidemark.warehouse.delta.probe import check_conditional_puts
from tidemark.warehouse.delta.retention import DEFAULT_GRACE
from tidemark.warehouse.delta.store import EVENTS, LEDGER, PARENTS, REJECTED, STEPS, Store
from tidemark.warehouse.errors import InputError, without_secrets
from tidemark.warehouse.events import steps
from tidemark.warehouse.ingest import rejected
from tidemark.warehouse.ledger import ledger_rows
from tidemark.warehouse.ledger.key_summaries import KeyPromise
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
    DEFAULT_TICK,
    Options,
    companions_of,
    parse_options,
    read_options,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_LOG = logging.getLogger("tidemark.create")


@report_os_errors("create")
def create(  # noqa: PLR0913  the options of a warehouse, all keyword-only
    spark: SparkSession | None,
    uri: str | os.PathLike[str],
    measures: str | list[str] | None = None,
    *,
    key: str | None = None,
    keys: Sequence[str | Sequence[str]] | None = None,
    groups: Sequence[str | Sequence[str]] | None = None,
    companions: Mapping[str, tuple[str, str]] | None = None,
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
    """Creates a warehouse and returns its options; if it exists, checks that it has the given options.

    spark     a Spark session; only needed for a schema as DDL text
    uri       the folder of the warehouse: new, or a warehouse
    measures  the numeric columns to answer quantile queries on; at least one
    key       the column to answer frequency queries on; None: no frequencies
    keys      further keys: each a column, or a list of columns whose values together are the key
    groups    keys by which the measures are sorted, too: quantiles of one value of such a key, or of each
              value, take milliseconds. Each group adds a sorted copy of every measure
    companions
              mergeable summaries of columns, by name: the name of a registered kind, and the column, such as
              {"users": ("hll", "user_id")}; `wh.companion` asks them
    time      the column of event times, a timestamp or a date; None: the tick of a row is a step number
    tick      the grain of windows, default '1 day'
    eps       an answer's rank error is at most eps * m, m being the live rows; in (0, 0.5), default 0.001
    kappa     the merge threshold: the most runs that a level keeps; at least 2, default 10
    grace     how long files are kept after they leave a table, so that readers can finish; default
              DEFAULT_GRACE of delta/retention.py
    key_eps, key_delta
              the error of a live count of a key is at most key_eps * m with probability 1 - key_delta;
              default 0.01 each; at least 7e-6 and 1e-12
    schema    the user's columns: a StructType, DDL text, a DataFrame, or a pyarrow schema; None: the first
              batch fixes them
    storage_options
              options of the object store, as delta-rs takes them

    Raises InputError for an invalid option and for an object store that does not refuse a second put of the
    same object, OptionsMismatch if the warehouse exists with other options.
    """
    given = parse_options(
        measures=measures,
        key=key,
        keys=keys,
        groups=groups,
        companions=companions,
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
    if opening.exists(store, EVENTS):
        options = read_options(store)
        options.check_same(given)
        return options
    if opening.exists(store, "."):
        raise InputError(
            f"{store.uri} is itself a Delta table, expected a new folder or a warehouse. "
            "Choose another folder."
        )
    store.check_place(writing=True)
    for name in (EVENTS, STEPS, LEDGER, REJECTED, *PARENTS):
        store.check_log(name)
    _check_no_other_files(store)
    options = _with_defaults(given)
    options.companions.check_kinds()
    KeyPromise.of(options).check()
    check_conditional_puts(store)
    fields = [] if schema is None else delta_fields(_parsed_schema(spark, schema))
    if schema is not None:
        columns = column_types(fields)
        options.check_columns(columns)
        for projection in replace(options, columns=tuple(columns.items())).projections:
            run_tables.create_tables(store, projection, options.grace_us)
    for name, table_schema in (
        (STEPS, steps.SCHEMA),
        (LEDGER, ledger_rows.schema(options.more_key_fields)),
        (REJECTED, rejected.SCHEMA),
    ):
        tables.create(store, name, table_schema, grace_us=options.grace_us)
    system_fields = [Field(name, PrimitiveType(kind)) for name, kind in SYSTEM_COLUMNS.items()]
    events_schema = Schema([*system_fields, *fields])
    tables.create(store, EVENTS, events_schema, properties=options.properties(), grace_us=options.grace_us)
    options = read_options(store)
    options.check_same(given)  # another process may have created it meanwhile
    _LOG.info(
        "%s: created for %s",
        without_secrets(store.uri),
        ", ".join([*options.measure_names, *(" and ".join(columns) for columns in options.key_names)]),
    )
    return options


def _check_no_other_files(store: Store) -> None:
    """InputError if the folder of `events` has files and is not a table.

    Files in its log folder are allowed: a creation that was killed while it wrote the log leaves them.
    """
    below_events = fs.FileSelector(EVENTS, recursive=True, allow_not_found=True)
    paths = [info.path for info in store.filesystem().get_file_info(below_events) if info.is_file]
    outside_log = [path for path in paths if not path.startswith(f"{EVENTS}/_delta_log/")]
    if outside_log and not opening.exists(store, EVENTS):
        raise InputError(
            f"{store.uri} is not a warehouse and holds other files: {outside_log[0]}. Choose another folder."
        )


def _with_defaults(given: dict[str, Any]) -> Options:
    if given["measures"] is None:
        raise InputError("a warehouse needs at least one measure: measures=['column'], or --measure column.")
    check_folders(given["measures"], given["groups"] or ())
    if given["tick"] is not None and given["time"] is None:
        raise InputError(
            "tick was given without a time column. Name one, or leave tick out: ticks are then step numbers."
        )
    tick_us = (given["tick"] or parse_duration(DEFAULT_TICK)) if given["time"] else None
    return Options(
        measure_names=tuple(given["measures"]),
        key=given["key"],
        more_keys=tuple(map(tuple, given["keys"] or ())),
        group_names=tuple(map(tuple, given["groups"] or ())),
        companion_names=companions_of(given["companions"] or {}),
        time=given["time"],
        tick_us=tick_us,
        tick_origin_us=MONDAY_US if tick_us is not None and tick_us % WEEK_US == 0 else 0,
        eps=DEFAULT_EPS if given["eps"] is None else given["eps"],
        kappa=DEFAULT_KAPPA if given["kappa"] is None else given["kappa"],
        grace_us=parse_duration(DEFAULT_GRACE) if given["grace"] is None else given["grace"],
        key_eps=DEFAULT_KEY_EPS if given["key_eps"] is None else given["key_eps"],
        key_delta=DEFAULT_KEY_DELTA if given["key_delta"] is None else given["key_delta"],
    )


def _parsed_schema(
    spark: SparkSession | None, schema: StructType | DataFrame | pa.Schema | str
) -> StructType | pa.Schema:
    if isinstance(schema, str):
        if spark is None:
            raise InputError(
                f"the schema {schema!r} is DDL text, which needs a Spark session; got None. "
                "Pass a session, or a pyarrow schema."
            )
        schema = spark.createDataFrame([], schema)
    fields = getattr(schema, "schema", schema)
    if isinstance(fields, pa.Schema):
        return fields  # of a table, too, or of the rows that a load reads
    if not callable(getattr(fields, "json", None)):
        raise InputError(
            f"schema must be a StructType, DDL text, a DataFrame or a pyarrow schema, got {schema!r}."
        )
    return cast("StructType", fields)
