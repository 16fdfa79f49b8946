"""The properties of `events` that hold the options: how their texts are read, and which values are valid."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tidemark.option_table import Option
from tidemark.warehouse.delta.table_names import PROPERTY_PREFIX, is_runs_table
from tidemark.warehouse.errors import NotAWarehouse, shortened
from tidemark.warehouse.private.secrets import is_fingerprint
from tidemark.warehouse.settings import features
from tidemark.warehouse.settings.allowed_columns import is_list_of_names
from tidemark.warehouse.settings.given_options import default_of
from tidemark.warehouse.settings.option_kinds import KINDS


def _are_numbers(value: Any, least: int = 0) -> bool:
    return isinstance(value, dict) and all(
        type(number) is int and number >= least for number in value.values()
    )


def _are_earlier_names(value: Any) -> bool:
    """Whether the value maps names of columns to lists of names, each with another first name."""
    return (
        isinstance(value, dict)
        and all(name and is_list_of_names(earlier) for name, earlier in value.items())
        and len({earlier[0].lower() for earlier in value.values()}) == len(value)
    )


def _is_rotation(value: Any) -> bool:
    kinds = {"fingerprint": str, "columns": dict, "step": int, "at": int}
    return isinstance(value, dict) and (
        not value
        or (
            {name: type(part) for name, part in value.items()} == kinds
            and is_fingerprint(value["fingerprint"])
            and is_list_of_names([*value["columns"].values()])
        )
    )


# What calls write beside the options, and which values are valid, in words. Each is absent while it is empty
# or None.
BESIDE: Mapping[str, str] = {
    "built_from": 'be an object that maps runs tables to steps: {"keys/origin": 7}',
    "dropped": 'map runs tables to times in microseconds: {"runs/delay": 1764000000000000}',
    "added_columns": 'map columns to times in microseconds: {"tip": 1764000000000000}',
    "features": 'be an object that maps names to versions: {"wide-marks": "0.3.0"}',
    "least_kappa": "be a whole number above 1",
    "horizon": "be the number of a tick, such as 20000",
    "fingerprint": "be 32 hexadecimal digits",
    "earlier_names": 'map columns to lists of their earlier names: {"tip": ["extra"]}',
    "rotation": "have fingerprint, columns, step, at",
}


def _is_valid(name: str, value: Any) -> bool:
    match name:
        case "built_from":
            return _are_numbers(value, -1)
        case "dropped":
            return _are_numbers(value) and all(map(is_runs_table, value))
        case "added_columns":
            return _are_numbers(value) and all(value)
        case "features":
            return features.are_valid(value)
        case "horizon" | "least_kappa":
            return type(value) is int and (abs(value) < 2**63 if name == "horizon" else value > 1)
        case "fingerprint":
            return is_fingerprint(value)
        case "earlier_names":
            return _are_earlier_names(value)
    return _is_rotation(value)


def read_option(uri: str, stored: Mapping[str, Any], option: Option) -> Any:
    """The stored form of an option."""
    if option.is_later and option.property not in stored:
        return default_of(option.name)
    with _told_as_damage(uri, stored, option.property):
        value = _parsed(stored[option.property])
        KINDS[option.kind].check(option, value)
    return value


def read_beside(uri: str, stored: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The values of properties of BESIDE, by name; those that are absent are left out."""
    values = {}
    for name in names:
        if name in stored:
            with _told_as_damage(uri, stored, name):
                values[name] = _parsed(stored[name])
                if not _is_valid(name, values[name]):
                    raise ValueError(f"{name} must {BESIDE[name]}")
    return values


@contextmanager
def _told_as_damage(uri: str, stored: Mapping[str, Any], name: str) -> Iterator[None]:
    """NotAWarehouse for a property that is missing, no JSON, or refused by its check."""
    try:
        yield
    except (KeyError, TypeError, ValueError, RecursionError) as error:  # InputError is a ValueError
        reason = "it is missing" if isinstance(error, KeyError) else str(error)
        raise damaged_property(uri, name, stored.get(name), reason) from error


def _parsed(text: Any) -> Any:
    return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object)


def damaged_property(uri: str, name: str, value: Any, reason: str) -> NotAWarehouse:
    """The error for a property whose value is not valid."""
    return NotAWarehouse(
        f"{uri} is a damaged warehouse: the property {PROPERTY_PREFIX}{name} of its events table is "
        f"{shortened(value)}: {reason.rstrip('.')}. "
        "Set it to what the warehouse was created with."
    )


def _refuse_constant(constant: str) -> None:
    """ValueError for NaN and infinities, which Python's parser accepts and JSON does not have."""
    raise ValueError(f"{constant} is not a JSON number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; ValueError if it has a name twice."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError(f"a name occurs more than once in {[name for name, _ in pairs]}")
    return members
