"""Verifies a warehouse: every invariant, on the real tables. Needs no JVM.

    python -m jobs.verify --warehouse W

Exit codes: 0 all hold, 1 one does not, 2 bad usage or not a warehouse.
"""

from __future__ import annotations

import argparse
import sys

from rich.console import Console

import warehouse
from warehouse.errors import TidemarkError


def main(argv: list[str] | None = None) -> int:
    """Runs the job; returns its exit code."""
    args = argparse.ArgumentParser(
        prog="verify.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    args.add_argument("--warehouse", required=True, metavar="PATH", help="the warehouse's folder or address")
    given = args.parse_args(argv)
    console, errors = Console(), Console(stderr=True)
    try:
        with console.status("verifying") as status:
            report = warehouse.verify(given.warehouse, progress=status.update)
    except TidemarkError as error:
        errors.print(f"[bold red]error:[/] {error}", highlight=False, soft_wrap=True)
        return 2
    console.print(str(report), highlight=False, soft_wrap=True)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
