"""The command `tidemark repair`: what is damaged is made again from the table of events."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from tidemark import warehouse
from tidemark.jobs.cli.exit_codes import DONE, FAILED
from tidemark.jobs.cli.progress import show_progress
from tidemark.jobs.inputs.engine import engine_for_rows, session_for
from tidemark.warehouse.columns.json_values import json_text
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.repair import events_rows

_WORDS = {
    "sound": "nothing is damaged",
    "planned": "would be repaired",
    "repaired": "repaired",
    "damaged": "some damage is left",
}


def run(given: argparse.Namespace) -> int:
    """Repairs the warehouse and prints what was done; FAILED if something is left."""
    spark = session_for(
        "local" if given.dry_run else given.engine,
        lambda: engine_for_rows(events_rows(Store.from_uri(given.warehouse, given.storage_options))),
        "tidemark repair",
    )
    with show_progress(spark) as set_phase:
        report = warehouse.repair(
            spark,
            given.warehouse,
            dry_run=given.dry_run,
            storage_options=given.storage_options,
            progress=set_phase,
        )
    if given.json:
        print(json_text({"warehouse": given.warehouse, **asdict(report)}))
    else:
        lines = [*report.actions, *(f"only a copy has it: {one}" for one in report.only_a_copy)]
        print("\n".join([f"{given.warehouse}: {_WORDS[report.outcome]}", *lines]))
    return FAILED if report.only_a_copy else DONE
