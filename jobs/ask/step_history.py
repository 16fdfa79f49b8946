"""The command `tidemark history`: the steps of a warehouse as a table, as text or as JSON."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tidemark import warehouse
from tidemark.jobs.ask.quantiles import moment_of
from tidemark.jobs.cli.exit_codes import DONE
from tidemark.jobs.cli.terminal import console
from tidemark.query.answers.rendering import text_of
from tidemark.warehouse.columns.json_values import json_text
from tidemark.warehouse.errors import InputError

if TYPE_CHECKING:
    import argparse
    from datetime import datetime

    from tidemark.warehouse import StepRecord

NAMES = ("step", "planned", "rows in", "rows out", "first time", "last time", "by", "version", "batches")
_SHOWN = 3  # ranges of batches


def run(given: argparse.Namespace) -> int:
    """Prints the steps, the oldest first."""
    if given.newest is not None and given.newest < 1:
        raise InputError(f"--newest must be at least 1, got {given.newest}.")
    steps = warehouse.history(
        given.warehouse, newest=given.newest, storage_options=given.storage_options, at=moment_of(given)
    )
    rows = [_row(step) for step in steps]
    if given.json:
        print(json_text({"steps": [step.to_dict() for step in steps]}))
    elif sys.stdout.isatty():
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        table = Table(*NAMES, box=SIMPLE_HEAD)
        for row in rows:
            table.add_row(*row)
        console().print(table)
    else:
        print("\n".join("\t".join(row) for row in [NAMES, *rows]))
    return DONE


def _row(step: StepRecord) -> tuple[str, ...]:
    batches = [_range_text(*one) for one in step.batches[:_SHOWN]]
    more = len(step.batches) - len(batches)
    return (
        f"{step.step}" if step.loaded else f"{step.step} (planned)",
        _time_text(step.planned_at),
        f"{step.rows_in:,}",
        f"{step.rows_out:,}",
        _time_text(step.first_time),
        _time_text(step.last_time),
        text_of(f"{step.user or '?'}@{step.host}") if step.host else "",
        text_of((step.version or "").removeprefix("tidemark ")),
        text_of(", ".join([*batches, *([f"{more} more"] if more else [])])),
    )


def _range_text(source: str, first: int, last: int, _: int) -> str:
    if source.startswith("load:"):
        return source
    return f"{source} {first}" if first == last else f"{source} {first} to {last}"


def _time_text(time: datetime | None) -> str:
    return "" if time is None else time.strftime("%Y-%m-%d %H:%M:%S")
