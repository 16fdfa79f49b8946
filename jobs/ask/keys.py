"""The commands that answer about keys, and how a key is typed.

A key is text on the command line. It is read as an engine casts text to the column's type: numbers, ISO dates
and times, true and false, hexadecimal digits of a binary key. Text that is none is refused; a number that no
row can have, such as 1.5 among whole ones, has the count 0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tidemark import query
from tidemark.jobs.ask.quantiles import answered, asked, number_of, phi_of
from tidemark.warehouse.errors import InputError

if TYPE_CHECKING:
    import argparse

    from tidemark.warehouse.columns.keys import Key

BOOLEANS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}


def frequency(given: argparse.Namespace) -> int:
    """Answers `tidemark freq`."""
    return answered(given, lambda wh: wh.frequency(keys_of(wh, given.key), **asked(wh, given)))


def top(given: argparse.Namespace) -> int:
    """Answers `tidemark top`."""
    return answered(given, lambda wh: wh.top(given.k, **asked(wh, given)))


def hitters(given: argparse.Namespace) -> int:
    """Answers `tidemark hitters`."""
    return answered(given, lambda wh: wh.heavy_hitters(phi_of(given.phi), **asked(wh, given)))


def keys_of(wh: query.Warehouse, texts: list[str]) -> list[Any]:
    """Keys in the column's own type; that there is no key is told by whoever is asked next."""
    return [text if wh.key is None else key_of(wh.key, text) for text in texts]


def key_of(key: Key, text: str) -> Any:
    """The key that the text stands for; InputError where it stands for none."""
    if key.type == "string":
        return text
    if key.type == "binary":
        return _binary(key, text)
    if key.type == "boolean":
        return _boolean(key, text)
    if key.type in {"date", "timestamp"}:
        name = key.name_of(text)
        return text if name is None else key.value_of(name)
    number = number_of(key, text)
    return _narrow(number) if key.type == "float" else number


def _binary(key: Key, text: str) -> bytes:
    try:
        return bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        raise InputError(
            f"not hexadecimal: {text!r}. {key.name!r} is of type binary: give two digits a byte."
        ) from None


def _boolean(key: Key, text: str) -> bool:
    found = BOOLEANS.get(text.strip().lower())
    if found is None:
        raise InputError(f"not a boolean: {text!r}. {key.name!r} is of type boolean: give true or false.")
    return found


def _narrow(number: float) -> float:
    """The float of 32 bits that the number is stored as: 0.1 is another double than the float 0.1."""
    with np.errstate(over="ignore"):
        narrow = float(np.float32(number))
    return number if math.isinf(narrow) else narrow
