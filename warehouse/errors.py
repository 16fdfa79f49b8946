"""The errors of the package: each says what came, what was expected and what to do.

`TidemarkError` is the base. `InputError` is the caller's mistake (nothing was changed);
`DamagedWarehouse` is the data's (the message names the file); `SystemRefused` is the machine's.
"""

from __future__ import annotations

import re


class TidemarkError(Exception):
    """Anything that tidemark refuses or cannot do."""


class InputError(TidemarkError, ValueError):
    """The caller asked for something that cannot be: nothing was changed."""


class NotAWarehouse(InputError):
    """The path holds no warehouse that this version can read."""


class OptionsMismatch(InputError):
    """The options given disagree with those that the warehouse was created with."""


class BatchMismatch(InputError):
    """A batch that was loaded before came again with other rows."""


class EmptyWindow(InputError):
    """The window (or the whole warehouse) holds no rows to answer from."""


class DamagedWarehouse(TidemarkError):
    """A file that a table names is missing or cannot be read."""


class Contended(TidemarkError):
    """Others kept committing first, try after try: nothing was lost, run the same again later."""


class CommitFailed(TidemarkError):
    """A commit that nobody competed with was not done, or may not be; the message says which, and why."""


class SystemRefused(TidemarkError):
    """The operating system refused: the disk is full, there is no permission, too many files are open."""


class TooManyRejected(TidemarkError):
    """More of a batch than allowed could not be taken: nothing of it was committed."""


def error_in_traceback(text: str) -> TidemarkError | None:
    """The package's error that a traceback in the text ends with: as text it crosses Spark; None: no such."""
    found = re.search(r"warehouse\.errors\.(\w+): (.+)", text)
    kind = globals().get(found[1]) if found else None
    return kind(found[2]) if found and kind else None
