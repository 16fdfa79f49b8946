"""The command `tidemark create`. It starts Spark only to parse --schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidemark import warehouse
from tidemark.jobs.cli.exit_codes import DONE
from tidemark.jobs.cli.options import parsed
from tidemark.option_table import OPTIONS, Option
from tidemark.warehouse.columns.json_values import json_text
from tidemark.warehouse.columns.ticks import parse_duration
from tidemark.warehouse.delta.store import UNFINISHED_UPLOADS, Store
from tidemark.warehouse.errors import NotAWarehouse

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import SparkSession

    from tidemark.warehouse.settings.options import Options


def run(given: argparse.Namespace) -> int:
    """Creates the warehouse, or checks that the existing one has these options."""
    outcome = "known" if _exists(given) else "created"
    options = warehouse.create(
        _session(given.schema),
        given.warehouse,
        **parsed.creation_options(given),
        reveal=given.reveal,
        schema=given.schema,
        storage_options=given.storage_options,
    )
    if given.json:
        print(json_text({"warehouse": given.warehouse, "outcome": outcome, **_facts(options)}))
    else:
        messages = {"created": "created", "known": "exists with these options, nothing changed"}
        print(f"{given.warehouse}: {messages[outcome]}")
        for name, value in _facts(options).items():
            print(f"  {name}: {value}")
        if outcome == "created" and Store.from_uri(given.warehouse, given.storage_options).keeps_parts:
            print(UNFINISHED_UPLOADS)
    return DONE


def _exists(given: argparse.Namespace) -> bool:
    try:
        warehouse.open_snapshot(given.warehouse, given.storage_options)
        return True
    except NotAWarehouse:
        return False


def _session(schema: str | None) -> SparkSession | None:
    if schema is None:
        return None
    from tidemark.jobs.spark.session import spark_session

    return spark_session("tidemark create")


def _facts(options: Options) -> dict[str, object]:
    stored = {option: options.stored(option) for option in OPTIONS.values() if option.is_told}
    facts = dict(map(_in_seconds, stored, stored.values()))
    return {
        **facts,
        "keys": [list(columns) for columns in options.key_names],
        "columns": dict(options.columns),
    }


def _in_seconds(option: Option, stored: Any) -> tuple[str, Any]:
    """The name and the stored form of an option; a duration in seconds."""
    if not option.property.endswith("_us"):
        return option.name, stored
    return f"{option.name}_seconds", None if stored is None else stored / parse_duration("1 s")
