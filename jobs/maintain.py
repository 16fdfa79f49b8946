"""Maintains a warehouse: deletes files past the grace, compacts small files.

spark-submit jobs/maintain.py --warehouse W
"""

from __future__ import annotations

if __name__ == "__main__":
    import tidemark.jobs.cli.starting  # noqa: F401  sets what Ctrl-C does

import argparse
import sys

from tidemark import warehouse
from tidemark.jobs.cli.certificates import print_certificate
from tidemark.jobs.cli.exit_codes import DONE, job_end
from tidemark.jobs.cli.options import changing
from tidemark.jobs.cli.process import job_arguments
from tidemark.jobs.cli.progress import show_progress
from tidemark.jobs.inputs.engine import engine_for_maintenance, session_for
from tidemark.warehouse.columns.json_values import json_text
from tidemark.warehouse.delta.store import UNFINISHED_UPLOADS, Store
from tidemark.warehouse.maintain import MaintenanceReport


def main(argv: list[str] | None = None) -> int:
    """Runs the job; returns its exit code."""
    given = job_arguments("maintain.py", __doc__, changing.MAINTAIN, argv)
    with job_end(given) as end:
        end.code = run(given)
    return end.code


def run(given: argparse.Namespace) -> int:
    """Maintains the warehouse and prints a report."""
    warehouse.open_snapshot(given.warehouse, given.storage_options)
    store = Store.from_uri(given.warehouse, given.storage_options)
    store.files.check_place(writing=True)
    spark = session_for(
        given.engine,
        lambda: engine_for_maintenance(given.warehouse, given.storage_options),
        "tidemark maintain",
    )
    with show_progress(spark) as set_phase:
        report = warehouse.maintain(
            spark,
            given.warehouse,
            grace=given.grace,
            storage_options=given.storage_options,
            progress=set_phase,
        )
    if given.json:
        print(json_text(_facts(report)))
    else:
        _print(report)
        if store.keeps_parts:
            print(UNFINISHED_UPLOADS)
    return DONE


def _facts(report: MaintenanceReport) -> dict[str, object]:
    compacted = {
        name: {"before": before, "after": after} for name, (before, after) in report.compacted.items()
    }
    return {
        "swept": report.swept,
        "compacted": compacted,
        "ledger_rows_expired": report.ledger_rows_expired,
        "marks_expired": report.marks_expired,
        "lengthened": report.lengthened,
        "held": report.held,
        "links": report.links,
        "purged": [one.to_json() for one in report.purged],
    }


def _print(report: MaintenanceReport) -> None:
    for name, count in report.swept.items():
        print(f"{name}: {count} files deleted")
    for name, (before, after) in report.compacted.items():
        print(f"{name}: {before} files compacted to {after}")
    for name, kept_for in report.lengthened.items():
        print(f"{name}: the log is now kept for {kept_for.removeprefix('interval ')}")
    for name, reason in report.held.items():
        print(f"{name}: nothing deleted, {reason}")
    for path in report.links:
        print(f"{path} is a symbolic link: it was not followed and not changed")
    for one in report.purged:
        print_certificate(one)
    print(f"ledger rows expired: {report.ledger_rows_expired}; marks expired: {report.marks_expired}")


if __name__ == "__main__":
    sys.exit(main())
