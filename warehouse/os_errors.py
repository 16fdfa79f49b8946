"""What the operating system refuses, told in one line with the remedy, whoever met it.

The driver meets a full disk as an OSError of Python or Arrow, or as an error of delta-rs that has the
number in its text alone; a task's error crosses Spark as the text of a traceback. So an error is known by its
number where it has one, and by its text otherwise.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EACCES, EDQUOT, EFBIG, EMFILE, ENAMETOOLONG, ENFILE, ENOSPC, EPERM, EROFS

from tidemark.warehouse.errors import DamagedWarehouse, SystemRefused, TidemarkError

_ROOM = "Make room, or have the quota raised"
_RIGHTS = "Ask the owner of the folder for the permission, or run as a user who has it"
_FILES = "Raise the limit of open files (ulimit -n)"
_REMEDIES = {
    ENOSPC: _ROOM,
    EDQUOT: _ROOM,
    EFBIG: "Raise the limit of a file's size (ulimit -f), or use a file system that takes larger ones",
    EACCES: _RIGHTS,
    EPERM: _RIGHTS,
    EROFS: "Mount the file system for writing, or use another place",
    EMFILE: _FILES,
    ENFILE: _FILES,
    ENAMETOOLONG: "Use a place with a shorter path",
}
_NUMBER = re.compile(r"(?:\[errno |os error |\bos \{ code: )(\d+)", re.IGNORECASE)  # Python, Arrow, Rust
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # of delta-rs
_LONGEST = 300  # characters of the system's own words


def as_system_refused(what: str, error: BaseException) -> SystemRefused | None:
    """The error as the system's refusal, `what` being what was done; None where it is something else."""
    found = _known(error)
    if found is None:
        return None
    number, line = found
    said = " ".join(_COLOURS.sub("", line).replace("↳", "").split())
    said = said if len(said) <= _LONGEST else f"{said[:_LONGEST]} ..."
    if os.strerror(number) not in said:
        said = f"{os.strerror(number)}: {said}"
    return SystemRefused(f"{what} was stopped by the system: {said.rstrip('.')}. {_REMEDIES[number]}.")


def unreadable_file_error(path: str, error: Exception) -> TidemarkError:
    """The error that tells of a file which could not be read, `error` being what was met.

    `path` is the file's, as full as the caller knows it. SystemRefused where the system refused to read it,
    and DamagedWarehouse otherwise, in one line: a task's error crosses Spark as text.
    """
    gone = isinstance(error, FileNotFoundError)
    found = "is missing" if gone else f"cannot be read ({' '.join(str(error).split())})"
    return as_system_refused(f"reading {path}", error) or DamagedWarehouse(
        f"the file {path} {found}. Run `tidemark verify` to see what else is damaged, and restore the file "
        "from a copy."
    )


@contextmanager
def report_unreadable_file(path: str) -> Iterator[None]:
    """Raises `unreadable_file_error` for whatever fails while a file of the warehouse is read inside."""
    try:
        yield
    except TidemarkError:
        raise
    except Exception as error:  # damaged bytes can make a decoder raise anything
        raise unreadable_file_error(path, error) from error


@contextmanager
def report_os_errors(what: str) -> Iterator[None]:
    """Around a public call, or over its function: what the system refuses inside is `SystemRefused`."""
    try:
        yield
    except TidemarkError:
        raise
    except BaseException as error:  # delta-rs panics, by an error of its own, where no file can be opened
        told = as_system_refused(what, error)
        if told is None:
            raise
        raise SystemRefused(
            f"{told} Nothing that was committed is lost, and nothing is there twice: then run it again."
        ) from error


def _known(error: BaseException) -> tuple[int, str] | None:
    """The number of the refusal, and the line of the error's text that tells it."""
    text = str(error)
    if isinstance(error, OSError) and error.errno in _REMEDIES:
        return error.errno, text
    whole = isinstance(error, OSError) or type(error).__module__.startswith(("_internal", "pyo3_runtime"))
    for line in [text] if whole else text.splitlines():
        for number in map(int, _NUMBER.findall(line)):
            if number in _REMEDIES:
                return number, line
        spoken = next((number for number in _REMEDIES if os.strerror(number) in line), None)
        if spoken is not None:  # Java tells no numbers
            return spoken, line
    return None
