"""Verifies a warehouse: checks every invariant on the stored tables. Needs no JVM.

    python -m tidemark.jobs.verify --warehouse W

The exit code is 1 if an invariant is broken. A check whose tables changed during every attempt is reported
as busy, and does not count as broken.
"""

from __future__ import annotations

if __name__ == "__main__":
    import tidemark.jobs.cli.starting  # noqa: F401  sets what Ctrl-C does

import argparse
import sys
from dataclasses import asdict

from tidemark import warehouse
from tidemark.jobs.cli.exit_codes import DONE, FAILED, job_end
from tidemark.jobs.cli.options import shared
from tidemark.jobs.cli.process import job_arguments
from tidemark.jobs.cli.progress import show_progress
from tidemark.warehouse.columns.json_values import json_text


def main(argv: list[str] | None = None) -> int:
    """Runs the job; returns its exit code."""
    given = job_arguments("verify.py", __doc__, shared.COMMON, argv)
    with job_end(given) as end:
        end.code = run(given)
    return end.code


def run(given: argparse.Namespace) -> int:
    """Checks every invariant and prints the report; FAILED if one is broken."""
    with show_progress(None) as set_phase:
        report = warehouse.verify(given.warehouse, storage_options=given.storage_options, progress=set_phase)
    checks = [{**asdict(check), "ok": check.ok} for check in report.checks]
    document = {"ok": report.ok, "warehouse": report.warehouse, "checks": checks}
    print(json_text(document) if given.json else report)
    return DONE if report.ok else FAILED


if __name__ == "__main__":
    sys.exit(main())
