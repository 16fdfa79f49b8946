"""Maintains a warehouse: sweeps what nobody may still see, compacts small files.

    spark-submit jobs/maintain.py --warehouse W

Exit codes: 0 done, 2 bad usage or not a warehouse, 1 anything else.
"""

from __future__ import annotations

import argparse
import sys

from rich.console import Console

import warehouse
from jobs.progress import shown
from jobs.session import spark_session
from warehouse.errors import InputError, TidemarkError


def main(argv: list[str] | None = None) -> int:
    """Runs the job; returns its exit code."""
    args = argparse.ArgumentParser(
        prog="maintain.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    args.add_argument("--warehouse", required=True, metavar="PATH", help="the warehouse's folder or address")
    args.add_argument(
        "--grace", metavar="SPAN", help="for this once instead of the warehouse's own grace period"
    )
    given = args.parse_args(argv)
    console, errors = Console(), Console(stderr=True)
    try:
        warehouse.open_snapshot(given.warehouse)
        spark = spark_session("tidemark maintain")
        with shown(spark, console) as tell:
            report = warehouse.maintain(spark, given.warehouse, grace=given.grace, progress=tell)
    except TidemarkError as error:
        errors.print(f"[bold red]error:[/] {error}", highlight=False, soft_wrap=True)
        return 2 if isinstance(error, InputError) else 1
    for name, count in report.swept.items():
        console.print(f"{name}: {count} files swept", highlight=False)
    for name, (before, after) in report.compacted.items():
        console.print(f"{name}: {before} files became {after}", highlight=False)
    console.print(
        f"ledger rows expired: {report.ledger_rows_expired}; marks expired: {report.marks_expired}",
        highlight=False,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
