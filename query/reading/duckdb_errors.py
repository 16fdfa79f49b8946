"""DuckDB's errors as the package's.

If a reader or function of ours raises an error inside DuckDB, DuckDB passes on only its text. So our errors
are kept (`Raised`), and the one that DuckDB's text quotes is raised instead. Other errors are refusals of the
operating system, or are explained by the caller of the statement.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from tidemark.warehouse.errors import DamagedWarehouse, SystemRefused, TidemarkError
from tidemark.warehouse.os_errors import as_system_refused, one_line, unreadable_file_error

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

T = TypeVar("T")
_KEPT = 16  # errors; a statement that fails has one for each of its parts that ran
_QUOTED = 100  # characters of an error's text that are looked for
MISSING = re.compile("No files found|No such file")
_SPARE_FILES = 8  # more than DuckDB opens at once while it starts


class Raised:
    """The errors that readers and functions of ours raised inside DuckDB, in any of its threads."""

    def __init__(self) -> None:
        self._errors: deque[Exception] = deque(maxlen=_KEPT)

    def keep(self, error: Exception) -> None:
        """Keeps an error that DuckDB gets to see."""
        self._errors.append(error)

    def kept(self, items: Iterator[T]) -> Iterator[T]:
        """The items, made in this thread's context, whichever thread takes them; their errors are kept."""
        return self._kept(items, copy_context())

    def _kept(self, items: Iterator[T], context: Context) -> Iterator[T]:
        try:
            with suppress(StopIteration):
                while True:
                    yield context.run(next, items)
        except Exception as error:
            self.keep(error)
            raise

    def behind(self, error: Exception) -> Exception | None:
        """The newest kept error that the text of DuckDB's error quotes; None if it quotes none."""
        text = str(error)
        return next(
            (one for one in reversed(self._errors) if str(one).partition("\n")[0][:_QUOTED] in text), None
        )


def error_of_files(error: Exception, paths: Collection[str]) -> TidemarkError | None:
    """The error for one of DuckDB that says that one of the files cannot be read; None for any other."""
    import duckdb

    text = str(error)
    named = next((path for path in paths if path in text), None)
    if named is not None:
        return unreadable_file_error(named, FileNotFoundError() if MISSING.search(text) else error)
    if type(error) is duckdb.Error and paths:  # of the decoders of Parquet: it names no file
        return DamagedWarehouse(
            f"a file of the warehouse cannot be read ({one_line(text)}). Run `tidemark verify` to see which "
            "is damaged, and restore it from a copy."
        )
    return None


@contextmanager
def report_duckdb_errors(
    operation: str, raised: Raised, explain: Callable[[Exception], TidemarkError | None] = lambda _: None
) -> Iterator[None]:
    """Raises an error of the package for each of DuckDB inside, with that as its cause.

    operation: the stopped operation, for the message.
    explain: makes the error for one that is neither ours nor a refusal; None leaves a general message.
    """
    import duckdb

    try:
        yield
        return
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        cause = error
    behind = raised.behind(cause) or cause
    if isinstance(behind, TidemarkError):
        raise behind from behind.__cause__ or cause
    told = _refusal(operation, behind) or explain(behind)
    if told is None:
        told = SystemRefused(
            f"{operation} failed: {one_line(str(behind))}. Run it again, and report it if it recurs."
        )
    raise told from behind


def _refusal(operation: str, error: Exception) -> TidemarkError | None:
    import duckdb

    if isinstance(error, duckdb.OutOfMemoryException):
        line = one_line(str(error).splitlines()[0]).rstrip(".")
        return SystemRefused(
            f"{operation} needs more memory and temporary disk space than there is: {line}. "
            "Free space in the folder for temporary files, select fewer rows, or declare the group."
        )
    return as_system_refused(operation, error)


def connect() -> DuckDBPyConnection:
    """A connection to a new database in memory. OSError if too many files are open: DuckDB would abort."""
    import duckdb

    spare: list[int] = []
    try:
        for _ in range(_SPARE_FILES):
            spare.append(os.open(os.devnull, os.O_RDONLY))  # noqa: PERF401  closed even if one fails
    finally:
        for number in spare:
            os.close(number)
    return duckdb.connect()
