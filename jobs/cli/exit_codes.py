"""How a job ends: 0 done, 2 bad usage or input and nothing was changed, 130 Ctrl-C, 1 anything else.

While it runs, what the library logs as a warning (a lost race of commits, say) is a line on stderr.
"""

from __future__ import annotations

import logging
import re
import sys
from typing import TYPE_CHECKING

from tidemark.jobs.cli.arguments import warehouse_of
from tidemark.warehouse.errors import InputError, TidemarkError

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

    An error that is neither ours nor the system's is a mistake of ours: it keeps its traceback. What fails
    only because Ctrl-C cut a call to Java short (py4j ends the connection) is Ctrl-C.
    """
    shown = _Warnings(logging.WARNING)
    logging.getLogger("tidemark").addHandler(shown)
    try:
        return run(given)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if _began_with_control_c(error):
            return INTERRUPTED
        if not isinstance(error, TidemarkError | OSError):
            raise
        print(f"error: {' '.join(_COLOURS.sub('', str(error)).split())}", file=sys.stderr)
        return REFUSED if isinstance(error, InputError) else FAILED
    finally:
        logging.getLogger("tidemark").removeHandler(shown)


def _began_with_control_c(error: BaseException | None) -> bool:
    """Whether the error was raised while a KeyboardInterrupt was on its way out."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


class _Warnings(logging.Handler):
    """A line on whatever stderr is at that moment: a status line may have taken its place."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"warning: {record.getMessage()}", file=sys.stderr)
