"""How a job ends: 0 done, 2 bad usage or input and nothing was changed, 130 Ctrl-C, 1 anything else."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from jobs.arguments import warehouse_of
from warehouse.errors import InputError, TidemarkError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # of delta-rs
DONE, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130


def ended(run: Callable[[argparse.Namespace], int], given: argparse.Namespace) -> int:
    """Runs a job with its warehouse named, as `finished` does."""
    given.warehouse = warehouse_of(given)
    return finished(run, given)


def finished(run: Callable[[argparse.Namespace], int], given: argparse.Namespace) -> int:
    """Runs a job, and tells an error in one line; its exit code.

    An error that is neither ours nor the system's is a mistake of ours: it keeps its traceback.
    """
    try:
        return run(given)
    except BrokenPipeError:
        raise
    except (TidemarkError, OSError) as error:
        print(f"error: {' '.join(_COLOURS.sub('', str(error)).split())}", file=sys.stderr)
        return REFUSED if isinstance(error, InputError) else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
