"""Exit codes of the commands and jobs, and how the end of a job becomes one.

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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.jobs.cli.options.parsed import storage_options_of, warehouse_of

if TYPE_CHECKING:
    import argparse

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


@dataclass(slots=True)
class JobEnd:
    """How a job ended: its exit code."""

    code: int = FAILED


@contextmanager
def job_end(given: argparse.Namespace, *, needs_warehouse: bool = True) -> Iterator[JobEnd]:
    """Prints an error inside as one line on stderr, and sets the exit code for it.

        with job_end(given) as end:
            end.code = run(given)
        return end.code

    needs_warehouse   whether the warehouse and its storage options are resolved from the arguments

    Errors other than TidemarkError and OSError are bugs and keep their traceback. An error that was raised
    while Ctrl-C was being handled counts as Ctrl-C: py4j closes the connection to Java when a call is cut
    short, and the next call then fails.
    """
    end, printer = JobEnd(), _WarningPrinter(logging.WARNING)
    logging.getLogger("tidemark").addHandler(printer)
    try:
        if needs_warehouse:
            given.warehouse, given.storage_options = warehouse_of(given), storage_options_of(given)
        yield end
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        end.code = _interrupted(given)
    except Exception as error:
        from tidemark.warehouse.errors import InputError, TidemarkError

        if control_c.is_set() or _began_with_control_c(error):
            end.code = _interrupted(given)
        elif isinstance(error, TidemarkError | OSError):
            _print_line(f"error: {' '.join(_COLOURS.sub('', str(error)).split())}")
            end.code = REFUSED if isinstance(error, InputError) else FAILED
        else:
            raise
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
