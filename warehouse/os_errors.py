"""Refusals of the operating system (full disk, missing permission) as one-line errors with a remedy.

The same refusal arrives in several forms: as an OSError of Python or Arrow, as an error of delta-rs with the
errno only in its text, or as the text of a Spark task's traceback. So a refusal is recognised by its errno
where the exception has one, and by its text otherwise.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EACCES, EDQUOT, EFBIG, EMFILE, ENAMETOOLONG, ENFILE, ENOSPC, EPERM, EROFS

from tidemark.warehouse.errors import DamagedWarehouse, SystemRefused, TidemarkError

_FREE_SPACE = "Free disk space, or have the quota raised"
_GET_PERMISSION = "Ask the owner of the folder for the permission, or run as a user who has it"
_RAISE_FILE_LIMIT = "Raise the limit of open files (ulimit -n)"
_REMEDIES = {
    ENOSPC: _FREE_SPACE,
    EDQUOT: _FREE_SPACE,
    EFBIG: "Raise the limit of a file's size (ulimit -f), or use a file system that allows larger files",
    EACCES: _GET_PERMISSION,
    EPERM: _GET_PERMISSION,
    EROFS: "Mount the file system for writing, or use another folder",
    EMFILE: _RAISE_FILE_LIMIT,
    ENFILE: _RAISE_FILE_LIMIT,
    ENAMETOOLONG: "Use a folder with a shorter path",
}
_ERRNO_TEXT = re.compile(r"(?:\[errno |os error |\bos \{ code: )(\d+)", re.IGNORECASE)  # Python, Arrow, Rust
_ANSI_COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # in the texts of delta-rs
_MAX_DETAIL_CHARS = 300  # of the original message


def as_system_refused(operation: str, error: BaseException) -> SystemRefused | None:
    """The error as SystemRefused; None if the operating system did not refuse anything.

    `operation` names what was stopped, for the message: "load", "reading a/b".
    """
    refusal = _find_refusal(error)
    if refusal is None:
        return None
    number, line = refusal
    detail = " ".join(_ANSI_COLOURS.sub("", line).replace("↳", "").split())
    detail = detail if len(detail) <= _MAX_DETAIL_CHARS else f"{detail[:_MAX_DETAIL_CHARS]} ..."
    if os.strerror(number) not in detail:
        detail = f"{os.strerror(number)}: {detail}"
    return SystemRefused(f"{operation} was stopped by the system: {detail.rstrip('.')}. {_REMEDIES[number]}.")


def unreadable_file_error(path: str, error: Exception) -> TidemarkError:
    """The error to raise for a file of the warehouse that could not be read because of `error`.

    SystemRefused if the operating system refused to read it, DamagedWarehouse otherwise. `path` appears in
    the message. The message is one line, because Spark passes errors of tasks as text (`error_in_traceback`).
    """
    is_missing = isinstance(error, FileNotFoundError)
    problem = "is missing" if is_missing else f"cannot be read ({' '.join(str(error).split())})"
    return as_system_refused(f"reading {path}", error) or DamagedWarehouse(
        f"the file {path} {problem}. Run `tidemark verify` to see what else is damaged, and restore the file "
        "from a copy."
    )


@contextmanager
def report_unreadable_file(path: str) -> Iterator[None]:
    """Raises `unreadable_file_error` for any error inside, where a file is read; a TidemarkError passes."""
    try:
        yield
    except TidemarkError:
        raise
    except Exception as error:  # damaged bytes can raise any error in a decoder
        raise unreadable_file_error(path, error) from error


@contextmanager
def report_os_errors(operation: str) -> Iterator[None]:
    """Raises SystemRefused for refusals of the operating system inside; other errors pass unchanged.

    It is also the decorator of the public functions. `operation` names the call in the message.
    """
    try:
        yield
    except TidemarkError:
        raise
    except BaseException as error:  # delta-rs panics with a BaseException if it cannot open a file
        refused = as_system_refused(operation, error)
        if refused is None:
            raise
        raise SystemRefused(
            f"{refused} Nothing that was committed is lost or stored twice. Then run it again."
        ) from error


def _find_refusal(error: BaseException) -> tuple[int, str] | None:
    """The errno of a refusal in `_REMEDIES`, and the line of the error's text that reports it.

    For an OSError and for errors of delta-rs the line is the whole text; other texts may be tracebacks.
    """
    text = str(error)
    if isinstance(error, OSError) and error.errno in _REMEDIES:
        return error.errno, text
    from_rust = type(error).__module__.startswith(("_internal", "pyo3_runtime"))
    lines = [text] if isinstance(error, OSError) or from_rust else text.splitlines()
    for line in lines:
        for number in map(int, _ERRNO_TEXT.findall(line)):
            if number in _REMEDIES:
                return number, line
        # Java's messages have no errno.
        described = next((number for number in _REMEDIES if os.strerror(number) in line), None)
        if described is not None:
            return described, line
    return None
