"""Creates a warehouse: its tables, `events` last; without a schema, the first batch makes runs and marks.

`events` carries the options, and a folder is a warehouse only once `events` exists. So a creation that was
killed leaves no warehouse, and creating it again continues. Two creations at once with the same options both
succeed; with other options, the later one raises OptionsMismatch.
"""

from __future__ import annotations

import inspect
import logging
import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from deltalake import Field, Schema
from deltalake.schema import PrimitiveType
from pyarrow import fs

from tidemark.option_table import OPTIONS, GivenOptions
from tidemark.warehouse.columns.schema import column_types, delta_fields
from tidemark.warehouse.delta import table_open, tables
from tidemark.warehouse.delta.probe import check_conditional_puts
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, LEDGER, PARENTS, REJECTED, STEPS
from tidemark.warehouse.errors import InputError, shortened, without_secrets
from tidemark.warehouse.events import steps
from tidemark.warehouse.ingest import rejected
from tidemark.warehouse.ingest.private_rows import as_token_field
from tidemark.warehouse.ledger import ledger_rows
from tidemark.warehouse.ledger.key_summaries import KeyPromise
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.private.secrets import REVEAL, named_fingerprint, secret_of, use_secret
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.settings import features
from tidemark.warehouse.settings.allowed_columns import SYSTEM_COLUMNS, check_folders
from tidemark.warehouse.settings.given_options import default_of, fields_of, parse_options
from tidemark.warehouse.settings.option_kinds import KINDS
from tidemark.warehouse.settings.options import Options, read_options

if TYPE_CHECKING:
    import os
    from typing import Unpack

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_LOG = logging.getLogger("tidemark.create")


def create(
    spark: SparkSession | None,
    uri: str | os.PathLike[str],
    measures: str | list[str] | None = None,
    *,
    schema: StructType | DataFrame | pa.Schema | str | None = None,
    storage_options: dict[str, str] | None = None,
    secret_file: str | os.PathLike[str] | None = None,
    secret_command: str | None = None,
    reveal: bool = False,
    **given: Unpack[GivenOptions],
) -> Options:
    """Creates a warehouse and returns its options; if it exists, checks that it has the given options.

    spark     a Spark session; only needed for a schema as DDL text
    uri       the folder of the warehouse: new, or a warehouse
    OPTIONS
    schema    the user's columns: a StructType, DDL text, a DataFrame, or a pyarrow schema; None: the first
              batch fixes them
    storage_options
              options of the object store, as delta-rs takes them
    secret_file, secret_command
              where the secret of private columns comes from, as `use_secret` takes them: it is not stored
    reveal    whether the secret can reveal the values of tokens (`query.reveal`). The text of records that a
              stream cannot take is then kept, too, encrypted, and tokens show how long values are

    Raises InputError for an invalid option, for private columns without a secret or with another one, and for
    an object store that does not refuse a second put of the same object; OptionsMismatch if the warehouse
    exists with other options.
    """
    with report_os_errors("create"):
        unknown = given.keys() - GivenOptions.__annotations__.keys()
        if unknown:
            raise TypeError(f"create() got an unexpected keyword argument {shortened(min(unknown))}")
        asked = parse_options(measures=measures, **given)
        store = Store.from_uri(uri, storage_options)
        fingerprint = _fingerprint(asked, secret_file, secret_command, reveal=reveal)
        store.files.check_place()
        if table_open.exists(store, EVENTS):
            options = read_options(store)
            options.check_same(asked)
            return _with_secret(options, fingerprint)
        if table_open.exists(store, "."):
            raise InputError(
                f"{store.uri} is itself a Delta table, expected a new folder or a warehouse. "
                "Choose another folder."
            )
        store.files.check_place(writing=True)
        for name in (EVENTS, STEPS, LEDGER, REJECTED, *PARENTS):
            store.files.check_log(name)
        _check_no_other_files(store)
        options = _with_defaults(asked)
        if options.private:
            options = replace(options, fingerprint=fingerprint or "").with_feature(features.PRIVATE)
        options.companions.known_kinds()  # one that is not registered is refused
        KeyPromise.of(options).check()
        check_conditional_puts(store)
        fields = [] if schema is None else delta_fields(_parsed_schema(spark, schema))
        fields = [as_token_field(field) if field.name in options.private else field for field in fields]
        if schema is not None:
            columns = options.with_token_types(column_types(fields))
            options.check_columns(columns)
            for projection in replace(options, columns=tuple(columns.items())).projections:
                run_tables.create_tables(store, projection, options.grace_us)
        for name, table_schema in (
            (STEPS, steps.SCHEMA),
            (LEDGER, ledger_rows.schema(options.key_fields)),
            (REJECTED, rejected.SCHEMA),
        ):
            tables.create(store, name, table_schema, grace_us=options.grace_us)
        system_fields = [Field(name, PrimitiveType(kind)) for name, kind in SYSTEM_COLUMNS.items()]
        events_schema = Schema([*system_fields, *fields])
        tables.create(
            store, EVENTS, events_schema, properties=options.properties(), grace_us=options.grace_us
        )
        options = read_options(store)
        _with_secret(options, fingerprint).check_same(asked)  # another process may have created it meanwhile
        _LOG.info(
            "%s: created for %s",
            without_secrets(store.uri),
            ", ".join([*options.measure_names, *(" and ".join(columns) for columns in options.key_names)]),
        )
        return options


def _fingerprint(
    asked: dict[str, Any], file: str | os.PathLike[str] | None, command: str | None, *, reveal: bool
) -> str | None:
    """The fingerprint of the secret that is given; None if none is given and no column is private.

    InputError for `reveal` without private columns, and without the package that it needs.
    """
    if reveal and not asked["private"]:
        raise InputError(
            "reveal=True is for private columns, and none is named. Name them, or all: private=True."
        )
    if file is not None or command is not None:
        found = use_secret(file=file, command=command)
    elif asked["private"]:
        found = named_fingerprint()
    else:
        return None
    if reveal:
        found = f"{REVEAL}{found}"
        secret_of(found).token(b"")
    return found


def _with_secret(options: Options, fingerprint: str | None) -> Options:
    """The options of a warehouse; InputError if it has private columns and not this secret."""
    if options.private and fingerprint is not None and options.fingerprint != fingerprint:
        raise InputError(
            f"the warehouse has the secret with the fingerprint {options.fingerprint}, the given one "
            f"has {fingerprint}. Give the warehouse's; 'reveal:' stands for reveal=True. Nothing was changed."
        )
    return options


def _describe_options() -> None:
    """Gives `create` the documentation and the keywords of the table of options."""
    lines: list[str] = []
    for option in OPTIONS.values():
        text = textwrap.fill(option.about + option.default_text("; default {}"), 96)
        text = textwrap.indent(text, " " * 14)
        is_short = len(option.name) < 9  # two spaces follow it; a longer name has a line of its own
        lines.append(f"    {option.name:<9} {text.lstrip()}" if is_short else f"    {option.name}\n{text}")
    create.__doc__ = (create.__doc__ or "").replace("    OPTIONS", "\n".join(lines))
    signature = inspect.signature(create)
    *fixed, _ = signature.parameters.values()
    keywords = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint.__forward_arg__)
        for name, hint in GivenOptions.__annotations__.items()
    ]
    parameters = [*fixed[:3], *keywords, *fixed[3:]]
    vars(create)["__signature__"] = signature.replace(parameters=parameters)


_describe_options()


def _check_no_other_files(store: Store) -> None:
    """InputError if the folder of `events` has files and is not a table.

    Files in its log folder are allowed: a creation that was killed while it wrote the log leaves them.
    """
    below_events = fs.FileSelector(EVENTS, recursive=True, allow_not_found=True)
    paths = [info.path for info in store.filesystem().get_file_info(below_events) if info.is_file]
    outside_log = [path for path in paths if not path.startswith(f"{EVENTS}/_delta_log/")]
    if outside_log and not table_open.exists(store, EVENTS):
        raise InputError(
            f"{store.uri} is not a warehouse and holds other files: {outside_log[0]}. Choose another folder."
        )


def _with_defaults(given: dict[str, Any]) -> Options:
    if given["measures"] is None:
        raise InputError("a warehouse needs at least one measure: measures=['column'], or --measure column.")
    indexes = KINDS["indexes"].as_field(given["index"])
    check_folders(given["measures"], [*(given["keys"] or ()), *(given["groups"] or ()), *indexes])
    if given["tick"] is not None and given["time"] is None:
        raise InputError(
            "tick was given without a time column. Name one, or leave tick out: ticks are then step numbers."
        )
    stored = {name: default_of(name) if value is None else value for name, value in given.items()}
    if given["time"] is None:
        stored["tick"] = None
    options = Options(**fields_of(stored))
    if options.index_columns:
        options = options.with_feature(features.INDEX)
    options.check_retention()
    return options


def _parsed_schema(
    spark: SparkSession | None, schema: StructType | DataFrame | pa.Schema | str
) -> StructType | pa.Schema:
    if isinstance(schema, str):
        if spark is None:
            raise InputError(
                f"the schema {shortened(schema)} is DDL text, which needs a Spark session; got None. "
                "Pass a session, or a pyarrow schema."
            )
        schema = spark.createDataFrame([], schema)
    fields = getattr(schema, "schema", schema)
    if isinstance(fields, pa.Schema):
        return fields  # `schema` may be anything that has a schema of Arrow, such as a table
    if not callable(getattr(fields, "json", None)):
        raise InputError(
            "schema must be a StructType, DDL text, a DataFrame or a pyarrow schema, got "
            f"{shortened(schema)}."
        )
    return cast("StructType", fields)
