"""Verifies a warehouse: every invariant, on the real tables. Needs no JVM.

    python -m tidemark.jobs.verify --warehouse W

Exit codes: 0 nothing is broken, 1 an invariant does not hold, 2 bad usage or not a warehouse. A check whose
tables changed at every look is told as busy, and breaks nothing.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict

from rich.console import Console

from tidemark import warehouse
from tidemark.jobs.cli import arguments
from tidemark.jobs.cli.exit_codes import ended
from tidemark.warehouse.columns.json_values import json_text


def main(argv: list[str] | None = None) -> int:
    """Runs the job; returns its exit code."""
    args = argparse.ArgumentParser(
        prog="verify.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.common(args)
    return ended(run, args.parse_args(argv))


def run(given: argparse.Namespace) -> int:
    """Checks every invariant; 1 where one does not hold."""
    with Console(stderr=True).status("verifying") as status:
        report = warehouse.verify(given.warehouse, progress=status.update)
    checks = [{**asdict(check), "ok": check.ok} for check in report.checks]
    told = {"ok": report.ok, "warehouse": report.warehouse, "checks": checks}
    print(json_text(told) if given.json else report)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
