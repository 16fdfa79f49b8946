"""The command `tidemark alter`: changes measures, keys, groups and options of a warehouse with data."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from tidemark import warehouse
from tidemark.jobs.cli.exit_codes import DONE
from tidemark.jobs.cli.options.parsed import names_of, types_of
from tidemark.jobs.cli.progress import show_progress
from tidemark.jobs.inputs.engine import engine_for_history, session_for
from tidemark.option_table import SETTINGS
from tidemark.warehouse.alter import check_changes
from tidemark.warehouse.columns.json_values import json_text
from tidemark.warehouse.columns.text_values import parse_columns
from tidemark.warehouse.delta.store import Store

_COLUMNS = ("add_measure", "drop_measure", "add_index", "drop_index")
_KEYS = ("add_key", "add_group", "drop_key", "drop_group")
_SORTING = ("add_measure", "add_key", "add_group", "add_index", "kappa", "widen")
_SAID = {
    "known": "it is so already, nothing changed",
    "altered": "done, without sorting any rows",
    "loaded": "done, {rows:,} rows of history were sorted for it",
}


def run(given: argparse.Namespace) -> int:
    """Makes the requested changes, and builds the history of new measures, keys, groups and indexes."""
    asked: dict[str, Any] = {name: getattr(given, name) for name in (*_COLUMNS, *SETTINGS)}
    for name in _KEYS:
        columns = getattr(given, name)
        asked[name] = columns and parse_columns(columns)
    asked["widen"] = types_of(given, "widen") or None
    asked["rename"] = names_of(given) or None
    asked["rotate_secret"] = given.rotate_secret
    check_changes(Store.from_uri(given.warehouse, given.storage_options), **asked)
    sorts = asked["rotate_secret"] or any(asked[name] is not None for name in _SORTING)
    spark = session_for(
        given.engine,
        lambda: engine_for_history(given.warehouse, given.storage_options) if sorts else "local",
        "tidemark alter",
    )
    with show_progress(spark) as set_phase:
        report = warehouse.alter(
            spark, given.warehouse, **asked, storage_options=given.storage_options, progress=set_phase
        )
    if given.json:
        print(json_text({"warehouse": given.warehouse, **asdict(report)}))
    else:
        print(f"{given.warehouse}: {_SAID[report.outcome].format(rows=report.rows)}")
    return DONE
