"""Errors of the package. Each message says what came, what was expected and what to do.

`TidemarkError` is the base class. `InputError` reports a mistake of the caller (nothing was changed),
`DamagedWarehouse` damaged data (the message names the file), `SystemRefused` a refusal of the operating
system, `StoreUnavailable` an object store that did not answer or refused.
"""

from __future__ import annotations

import re


class TidemarkError(Exception):
    """Base class of the errors that tidemark raises."""


class InputError(TidemarkError, ValueError):
    """The arguments or the input are not valid. Nothing was changed."""


class NotAWarehouse(InputError):
    """The path has no warehouse that this version can read."""


class OptionsMismatch(InputError):
    """The options differ from the options that the warehouse was created with."""


class BatchMismatch(InputError):
    """A batch that was loaded or appended before came again with other rows."""


class EmptyWindow(InputError):
    """The window (or the whole warehouse) has no rows to answer from."""


class DamagedWarehouse(TidemarkError):
    """A file that a table names is missing, cannot be read, or differs from what was written."""


class Contended(TidemarkError):
    """Other writers won every commit attempt. Nothing was lost: run the same call again later."""


class CommitFailed(TidemarkError):
    """Without a concurrent commit, a commit failed or its outcome is unknown. The message says why."""


class SystemRefused(TidemarkError):
    """The operating system refused: a full disk, a missing permission, too many open files."""


class StoreUnavailable(TidemarkError):
    """The object store did not answer, or refused the credentials. Nothing is wrong with the warehouse."""


class TooManyRejected(TidemarkError):
    """More records of a batch were rejected than allowed. Nothing of the batch was committed."""


# The user, the password and the query string of an address.
_SECRET = re.compile(r"(?<=://)[^/\s@]*@|\?[^\s'\")]*")


def without_secrets(text: str) -> str:
    """The text without the users, passwords and query strings of its addresses."""
    return _SECRET.sub("", text)


def error_in_traceback(text: str) -> TidemarkError | None:
    """The package's error that a traceback names, None if it names none.

    Errors of Spark tasks reach the driver only as text. The message is the rest of the first such line.
    """
    match = re.search(r"warehouse\.errors\.(\w+): (.+)", text)
    error_class = globals().get(match[1]) if match else None
    return error_class(match[2]) if match and error_class else None
