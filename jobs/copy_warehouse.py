"""The command `tidemark copy`: a warehouse at another place, verified."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark import warehouse
from tidemark.jobs.cli.exit_codes import DONE, FAILED
from tidemark.jobs.cli.options.parsed import storage_options_of, warehouse_of
from tidemark.jobs.cli.progress import show_progress
from tidemark.warehouse.columns.json_values import json_text

if TYPE_CHECKING:
    import argparse


def run(given: argparse.Namespace) -> int:
    """Copies the warehouse of the first place, or of -w, to the last one; FAILED if the copy is not sound."""
    *named, given.to = given.places
    if len(named) > 1 or (named and hasattr(given, "warehouse")):
        given.parser.error(
            f"expected FROM TO, or TO and the warehouse by -w, got {' '.join(given.places)}"
            f"{' and -w' if hasattr(given, 'warehouse') else ''}."
        )
    if named:
        given.warehouse = named[0]
    given.warehouse = warehouse_of(given)
    with show_progress(None) as set_phase:
        report = warehouse.copy(
            given.warehouse,
            given.to,
            storage_options=storage_options_of(given),
            to_storage_options=storage_options_of(given, "to-"),
            check=not given.no_verify,
            progress=set_phase,
        )
    checks = () if report.verified is None else report.verified.checks
    failed = [check for check in checks if not check.ok]
    if given.json:
        print(
            json_text(
                {
                    "warehouse": given.warehouse,
                    "copy": given.to,
                    "versions": report.versions,
                    "files": report.files,
                    "bytes": report.bytes,
                    "there": report.there,
                    "ok": None if report.verified is None else report.verified.ok,
                }
            )
        )
    else:
        there = f", {report.there} of them were there" if report.there else ""
        sound = "not verified" if report.verified is None else "not sound" if failed else "verified"
        print(f"{given.to}: {report.files} files, {report.bytes / 2**20:.1f} MB{there}; {sound}")
        for check in failed:
            print(f"{check.name}: {check.detail}")
    return FAILED if failed else DONE
