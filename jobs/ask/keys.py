"""What the commands about keys do (jobs/cli/command_options.py has their options), and the parsing of keys.

A key is parsed as SQL engines cast text to the key's type: numbers, ISO dates and times, true and false,
hexadecimal digits for binary keys. Text that does not parse raises InputError. A number that no row can have,
such as 1.5 for an integer key, has the count 0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tidemark import query
from tidemark.jobs.ask.quantiles import parse_number, parse_phi, print_answers, window_and_mode
from tidemark.warehouse.errors import InputError

if TYPE_CHECKING:
    import argparse

    from tidemark.warehouse.columns.keys import Key

BOOLEANS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}


def frequency(given: argparse.Namespace) -> int:
    """Runs `tidemark freq`."""
    return print_answers(
        given, lambda wh: wh.frequency(parse_keys(wh, given.key), **window_and_mode(wh, given))
    )


def top(given: argparse.Namespace) -> int:
    """Runs `tidemark top`."""
    return print_answers(given, lambda wh: wh.top(given.k, **window_and_mode(wh, given)))


def hitters(given: argparse.Namespace) -> int:
    """Runs `tidemark hitters`."""
    return print_answers(
        given, lambda wh: wh.heavy_hitters(parse_phi(given.phi), **window_and_mode(wh, given))
    )


def parse_keys(wh: query.Warehouse, texts: list[str]) -> list[Any]:
    """The keys in the type of the key column; without a key column the texts, which the query refuses."""
    return [text if wh.key is None else parse_key(wh.key, text) for text in texts]


def parse_key(key: Key, text: str) -> Any:
    """The text as a value of the key's type; InputError if it does not parse."""
    if key.type == "string":
        return text
    if key.type == "binary":
        return _binary(key, text)
    if key.type == "boolean":
        return _boolean(key, text)
    if not key.column_type.is_number:
        name = key.name_of(text)
        return text if name is None else key.value_of(name)
    number = parse_number(key, text)
    return _as_float32(number) if key.type == "float" else number


def _binary(key: Key, text: str) -> bytes:
    try:
        return bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        raise InputError(
            f"not hexadecimal: {text!r}. {key.name!r} is of type binary: give two digits per byte."
        ) from None


def _boolean(key: Key, text: str) -> bool:
    value = BOOLEANS.get(text.strip().lower())
    if value is None:
        raise InputError(f"not a boolean: {text!r}. {key.name!r} is of type boolean: give true or false.")
    return value


def _as_float32(number: float) -> float:
    """The number rounded to 32 bits, as it is stored: the double 0.1 differs from the float 0.1.

    A number beyond the range of 32 bits stays as it is.
    """
    with np.errstate(over="ignore"):
        rounded = float(np.float32(number))
    return number if math.isinf(rounded) else rounded
