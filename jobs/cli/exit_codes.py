"""Exit codes of the commands and jobs, and the function that turns the outcome of a job into one.

`RULE` is what the help pages print. In addition:

* argparse ends a process with `REFUSED` when the arguments do not parse.
* SIGTERM stops `stream`, `sql-server`, `serve` and `alert` after the work in progress, with `DONE`. Other
  jobs do not handle it: the operating system ends them, and a shell reports 143.
* The command `tidemark` ends with `DONE` if the reader of its output closes the pipe (`| head`).

While a job runs, the library's log records of level WARNING (such as a lost commit race) are printed to
stderr. This module imports the warehouse only when a job runs, so that help pages stay fast.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
from typing import TYPE_CHECKING

from tidemark.jobs.cli.options.parsed import storage_options_of, warehouse_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

DONE = 0
FAILED = 1
REFUSED = 2
INTERRUPTED = 130

control_c = threading.Event()  # whether Ctrl-C came; set by process.py

RULE = f"""\
exit codes:
  {DONE:<3}  done
  {REFUSED:<3}  bad usage or bad input, and nothing was changed
  {INTERRUPTED:<3}  ended by Ctrl-C; `stream`, `sql-server`, `serve`, `watch` and `alert` end with {DONE}
  {FAILED:<3}  anything else
"""

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # in the error texts of delta-rs


def run_warehouse_job(run: Callable[[argparse.Namespace], int], given: argparse.Namespace) -> int:
    """Resolves the warehouse and its storage options from the arguments, then runs the job like `run_job`."""
    given.warehouse, given.storage_options = warehouse_of(given), storage_options_of(given)
    return run_job(run, given)


def run_job(run: Callable[[argparse.Namespace], int], given: argparse.Namespace) -> int:
    """Runs a job, prints an error as one line on stderr and returns the exit code.

    Errors other than TidemarkError and OSError are bugs and keep their traceback. An error that was raised
    while Ctrl-C was being handled counts as Ctrl-C: py4j closes the connection to Java when a call is cut
    short, and the next call then fails.
    """
    from tidemark.warehouse.errors import InputError, TidemarkError

    printer = _WarningPrinter(logging.WARNING)
    logging.getLogger("tidemark").addHandler(printer)
    try:
        return run(given)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        return _interrupted(given)
    except Exception as error:
        if control_c.is_set() or _began_with_control_c(error):
            return _interrupted(given)
        if not isinstance(error, TidemarkError | OSError):
            raise
        _print_line(f"error: {' '.join(_COLOURS.sub('', str(error)).split())}")
        return REFUSED if isinstance(error, InputError) else FAILED
    finally:
        logging.getLogger("tidemark").removeHandler(printer)


def _interrupted(given: argparse.Namespace) -> int:
    """Prints what is true after Ctrl-C, if the job changes a warehouse: its option `after_interrupt`."""
    if holds := getattr(given, "after_interrupt", None):
        _print_line(f"stopped by Ctrl-C. {holds}")
    return INTERRUPTED


def _began_with_control_c(error: BaseException | None) -> bool:
    """Whether the error, or one that it followed from, is a KeyboardInterrupt."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


class _WarningPrinter(logging.Handler):
    """Prints each record as a line to the current sys.stderr, which a status line may have replaced."""

    def emit(self, record: logging.LogRecord) -> None:
        _print_line(f"warning: {record.getMessage()}")


def _print_line(text: str) -> None:
    """Prints one line to stderr; names in it are data: their control characters become escapes."""
    from tidemark.query.answers.rendering import text_of
    from tidemark.warehouse.errors import without_long

    print(text_of(without_long(text)), file=sys.stderr)
