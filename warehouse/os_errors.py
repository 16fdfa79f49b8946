"""Refusals of the operating system or of an object store, as one-line errors with a remedy.

The same refusal arrives in several forms: as an OSError of Python or Arrow, as an error of delta-rs with the
errno only in its text, or as the text of a Spark task's traceback. So a refusal is recognised by its errno
where the exception has one, and by its text otherwise. An object store has no errno: the text of the error
says whether the store answered with a status, or not at all.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from errno import EACCES, EDQUOT, EFBIG, EMFILE, ENAMETOOLONG, ENFILE, ENOMEM, ENOSPC, EPERM, EROFS

from tidemark.warehouse.errors import (
    DamagedWarehouse,
    InputError,
    StoreUnavailable,
    SystemRefused,
    TidemarkError,
    without_secrets,
)

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
    ENOMEM: "Free memory, or raise the limit of a process (ulimit -v)",
    ENAMETOOLONG: "Use a folder with a shorter path",
}
_ERRNO_TEXT = re.compile(r"(?:\[errno |os error |\bos \{ code: )(\d+)", re.IGNORECASE)  # Python, Arrow, Rust
_ANSI_COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # in the texts of delta-rs
_FORKED = "Forked process detected"  # how delta-rs panics
_MAX_DETAIL_CHARS = 300  # of the original message


# Of delta-rs' store, object_store: how it reports a request that failed after its own retries.
_STORE_FAILED = re.compile(r"Error performing [A-Z]+ \S+ in |Generic (?:S3|GCS|MicrosoftAzure|HTTP) error")
_STORE_DENIED = re.compile(
    "lacked (?:the necessary privileges|valid authentication)|403 Forbidden|401 Unauthorized|AccessDenied"
)
# A store that says that it does not have an object did answer.
_OBJECT_IS_MISSING = re.compile(r"Object at location .* not found(?!.*NoSuchBucket)", re.DOTALL)
_INVALID_OPTION = re.compile(r"failed to parse .* as (\w+)")
_DENIED_REMEDY = "Give the credentials the right to do it, or pass other credentials (storage_options)"
_FAILED_REMEDY = "Check the address, the endpoint and the region (storage_options), and run the same again"


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Who refused, the reason in a few words, the text of the error that reports it, and what to do."""

    by: type[SystemRefused] | type[StoreUnavailable]
    reason: str
    text: str
    remedy: str


def as_system_refused(operation: str, error: BaseException) -> SystemRefused | StoreUnavailable | None:
    """The error as SystemRefused or StoreUnavailable; None if neither the system nor a store refused.

    `operation` names what was stopped, for the message: "load", "reading a/b".
    """
    if _FORKED in str(error):
        return forked_error()
    refusal = _find_refusal(error)
    if refusal is None:
        return None
    detail = one_line(refusal.text)
    if refusal.reason not in detail:
        detail = f"{refusal.reason}: {detail}"
    who = "system" if refusal.by is SystemRefused else "object store"
    return refusal.by(f"{operation} was stopped by the {who}: {detail.rstrip('.')}. {refusal.remedy}.")


def forked_error() -> SystemRefused:
    """The error in a forked child for what needs the threads of delta-rs, which only the parent has."""
    return SystemRefused(
        "this process was forked from one that had used a warehouse, and has none of its threads. Start "
        "processes by multiprocessing.get_context('spawn'), or fork before the first use of a warehouse."
    )


def one_line(text: str) -> str:
    """An error's text as one line of bounded length, without colours and without secrets in addresses."""
    line = without_secrets(" ".join(_ANSI_COLOURS.sub("", text).replace("↳", "").split()))
    return line if len(line) <= _MAX_DETAIL_CHARS else f"{line[:_MAX_DETAIL_CHARS]} ..."


def is_store_failure(error: BaseException) -> bool:
    """Whether an object store failed to answer a request, or answered that it cannot at the moment."""
    text = str(error)
    return bool(_STORE_FAILED.search(text)) and not (
        _STORE_DENIED.search(text) or _OBJECT_IS_MISSING.search(text)
    )


def in_home(path: str | os.PathLike[str]) -> str:
    """The path with the home folder in place of ~; unchanged if it cannot be a path: opening it tells why."""
    try:
        return os.path.expanduser(path)
    except ValueError:  # NUL, or half of a surrogate pair, in the name of a user
        return os.fspath(path)


def unreadable_file_error(path: str, error: Exception) -> TidemarkError:
    """The error to raise for a file of the warehouse that could not be read because of `error`.

    SystemRefused or StoreUnavailable if the system or the store refused, DamagedWarehouse otherwise. `path`
    appears in the message. The message is one line, because Spark passes errors of tasks as text
    (`error_in_traceback`).
    """
    is_missing = isinstance(error, FileNotFoundError)
    problem = "is missing" if is_missing else f"cannot be read ({one_line(str(error))})"
    return as_system_refused(f"reading {path}", error) or DamagedWarehouse(
        f"the file {path} {problem}. Run `tidemark verify` to see what else is damaged, and `tidemark "
        "repair`: it makes it again from events, or names it among the files that only a copy has."
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
    """Raises SystemRefused and StoreUnavailable for refusals inside; other errors pass unchanged.

    The body of each public function is inside one. `operation` names the call in the message.
    """
    try:
        yield
    except TidemarkError as error:
        _remove_secrets(error)
        raise
    except BaseException as error:  # delta-rs panics with a BaseException if it cannot open a file
        expected = _INVALID_OPTION.search(str(error))
        _remove_secrets(error)
        if expected is not None:
            raise InputError(
                f"a value of storage_options is not valid: a {expected[1]} was expected. Give another value."
            ) from error
        refused = as_system_refused(operation, error)
        if refused is None:
            raise
        raise type(refused)(
            f"{refused} Nothing that was committed is lost or stored twice. Then run it again."
        ) from error


def _remove_secrets(error: BaseException) -> None:
    """Removes secrets from the texts of the foreign errors that a traceback shows with this one."""
    pending: list[BaseException | None] = [error]
    seen: list[BaseException] = []
    while pending:
        one = pending.pop()
        if one is None or one in seen:
            continue
        seen.append(one)
        pending += [one.__cause__, one.__context__]
        if not isinstance(one, TidemarkError) and ("://" in str(one) or _INVALID_OPTION.search(str(one))):
            one.args = tuple(without_secrets(arg) if isinstance(arg, str) else arg for arg in one.args)


def _find_refusal(error: BaseException) -> _Refusal | None:
    """The refusal that the error reports.

    For an OSError and for errors of delta-rs its text is the whole text; other texts may be tracebacks.
    """
    text = str(error)
    if _STORE_DENIED.search(text) and _STORE_FAILED.search(text):
        return _Refusal(StoreUnavailable, "not allowed", text, _DENIED_REMEDY)
    if is_store_failure(error):
        return _Refusal(StoreUnavailable, "no answer", text, _FAILED_REMEDY)
    if isinstance(error, OSError) and error.errno in _REMEDIES:
        return _system_refusal(error.errno, text)
    from_rust = type(error).__module__.startswith(("_internal", "pyo3_runtime"))
    lines = [text] if isinstance(error, OSError) or from_rust else text.splitlines()
    for line in lines:
        for number in map(int, _ERRNO_TEXT.findall(line)):
            if number in _REMEDIES:
                return _system_refusal(number, line)
        # Java's messages have no errno.
        described = next((number for number in _REMEDIES if os.strerror(number) in line), None)
        if described is not None:
            return _system_refusal(described, line)
    return None


def _system_refusal(number: int, text: str) -> _Refusal:
    return _Refusal(SystemRefused, os.strerror(number), text, _REMEDIES[number])
