"""How a job ends: 0 done, 2 bad usage or input and nothing was changed, 1 anything else."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from jobs.arguments import warehouse_of
from warehouse.errors import InputError, TidemarkError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

DONE, FAILED, REFUSED = 0, 1, 2


def ended(run: Callable[[argparse.Namespace], int], given: argparse.Namespace) -> int:
    """Runs a job with its warehouse named, and tells an error of ours in one line; its exit code."""
    given.warehouse = warehouse_of(given)
    try:
        return run(given)
    except TidemarkError as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED if isinstance(error, InputError) else FAILED
