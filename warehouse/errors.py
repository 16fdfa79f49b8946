"""Errors of the package. Each message says what came, what was expected and what to do.

`TidemarkError` is the base class. `InputError` reports a mistake of the caller (nothing was changed),
`DamagedWarehouse` damaged data (the message names the file), `SystemRefused` a refusal of the operating
system, `StoreUnavailable` an object store that did not answer or refused.

A message has at most 2,000 characters: of something long that came it shows the start and the end. The
checks that public calls share are here, too: of a whole number, a name, and a value out of several.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_SHOWN = 100  # characters of a value in an error text
_MOST = 2_000  # characters of an error text: a screen
_LONG_WORD = re.compile(r"(?<!\S)(\S{200})\S{101,}(\S{100})")  # such as a path of 100 KB
MOST_LONG = 2**63 - 1  # the greatest whole number that a table can hold


class TidemarkError(Exception):
    """Base class of the errors that tidemark raises."""

    def __init__(self, *given: object) -> None:
        super().__init__(*(without_long(one) if isinstance(one, str) else one for one in given))


class InputError(TidemarkError, ValueError):
    """The arguments or the input are not valid. Nothing was changed."""


class NotAWarehouse(InputError):
    """The path has no warehouse that this version can read."""


class OptionsMismatch(InputError):
    """The given options differ from the options of the warehouse."""


class BatchMismatch(InputError):
    """A batch that was loaded or appended before came again with other rows."""


class OverlappingBatch(InputError):
    """A batch has the same rows as an earlier one, or nearly, and such a batch was to be refused."""


class EmptyWindow(InputError):
    """The window (or the whole warehouse) has no rows to answer from."""


class NotBuilt(InputError):
    """A measure or key that was added later does not have all rows of history yet."""


class DamagedWarehouse(TidemarkError):
    """A file that a table names is missing, cannot be read, or differs from what was written."""


class TimeLimitReached(TidemarkError):
    """A question took longer than it may, or who asked it does not wait any more."""


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


# The user, the password and the query string of an address; the value of a storage option in delta-rs' text.
_SECRET = re.compile(r"(?<=://)[^/\s@]*@|\?[^\s'\")]*|(?<=failed to parse )\".*\"(?= as )")


def without_secrets(text: str) -> str:
    """The text without the users, passwords and query strings of its addresses, and values of options."""
    return _SECRET.sub("", text)


def without_long(text: str) -> str:
    """The text with at most 300 characters of each word of more than 400, and at most 2,000 in all.

    Of what is longer the start and the end stay: of a path its file, of a text the remedy.
    """
    short = _LONG_WORD.sub(r"\1...\2", text)
    kept = (_MOST - len("...")) // 2
    return short if len(short) <= _MOST else f"{short[:kept]}...{short[-kept:]}"


def error_in_traceback(text: str) -> TidemarkError | None:
    """The package's error that a traceback names, None if it names none.

    Errors of Spark tasks reach the driver only as text. The message is the rest of the first such line.
    """
    match = re.search(r"warehouse\.errors\.(\w+): (.+)", text)
    error_class = globals().get(match[1]) if match else None
    return error_class(match[2]) if match and error_class else None


def shortened(value: Any) -> str:
    """The repr of the value for an error text, cut to 100 characters."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of more than 4,300 digits
        return f"a {type(value).__name__} of too many digits"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def whole_number(name: str, value: Any, least: int, most: int = MOST_LONG, *, hint: str = "") -> int:
    """The value; InputError unless it is a whole number from `least` to `most`, inclusive, and no boolean.

    `name` is the name of the number in the error text, `hint` a text that is added to it.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        expected = f"of at least {least}" if most == MOST_LONG else f"from {least} to {_number_text(most)}"
        above = isinstance(value, int) and value > MOST_LONG == most
        raise InputError(
            f"{name} must be a whole number {expected}{' and at most 2**63 - 1' if above else ''}, "
            f"got {shortened(value)}.{hint and ' '}{hint}"
        )
    return value


def one_of(name: str, value: Any, allowed: Sequence[str]) -> None:
    """InputError for a value that is none of these."""
    if value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {shortened(value)}.")


def name_text(role: str, value: Any) -> str:
    """The value; InputError unless it is text that is not blank and can be stored: no half of a character."""
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{role} must be a name that is not empty, got {shortened(value)}.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{role} cannot be stored: {shortened(value)} has half of a character (a lone surrogate)."
        ) from None
    return value


def _number_text(number: int) -> str:
    """Large numbers near a power of 2 as such: 2**40, 2**63 - 2."""
    power = number.bit_length()
    near = next((p for p in (power - 1, power) if p >= 40 and abs(2**p - number) < 3), None)
    if near is None:
        return f"{number:,}"
    return f"2**{near}" if number == 2**near else f"2**{near} - {2**near - number}"
