"""The command `tidemark alter`: a further key or group for a warehouse that has data."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from tidemark import warehouse
from tidemark.jobs.cli.exit_codes import DONE
from tidemark.jobs.cli.progress import show_progress
from tidemark.jobs.inputs.engine import engine_for_history, session_for
from tidemark.warehouse.alter import check_additions
from tidemark.warehouse.columns.json_values import json_text
from tidemark.warehouse.columns.text_values import parse_columns
from tidemark.warehouse.delta.store import Store

if TYPE_CHECKING:
    import argparse


def run(given: argparse.Namespace) -> int:
    """Adds the key and the group, and builds their history."""
    add_key, add_group = (columns and parse_columns(columns) for columns in (given.add_key, given.add_group))
    check_additions(Store.from_uri(given.warehouse, given.storage_options), add_key, add_group)
    spark = session_for(
        given.engine, lambda: engine_for_history(given.warehouse, given.storage_options), "tidemark alter"
    )
    with show_progress(spark) as set_phase:
        report = warehouse.alter(
            spark,
            given.warehouse,
            add_key=add_key,
            add_group=add_group,
            storage_options=given.storage_options,
            progress=set_phase,
        )
    if given.json:
        print(json_text({"warehouse": given.warehouse, **asdict(report)}))
    elif report.outcome == "known":
        print(f"{given.warehouse}: has it already, nothing changed")
    else:
        print(f"{given.warehouse}: added, {report.rows:,} rows of history were sorted for it")
    return DONE
