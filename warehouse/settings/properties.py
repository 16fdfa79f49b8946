"""The properties of `events` that hold the options: how their texts are read, and which values are valid."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tidemark.option_table import Option
from tidemark.warehouse.delta.table_names import PROPERTY_PREFIX, is_runs_table
from tidemark.warehouse.errors import NotAWarehouse, shortened
from tidemark.warehouse.private.secrets import is_fingerprint
from tidemark.warehouse.settings import features
from tidemark.warehouse.settings.given_options import default_of
from tidemark.warehouse.settings.option_checks import is_list_of_names
from tidemark.warehouse.settings.option_kinds import KINDS


def _check_built_from(steps: Any) -> None:
    """ValueError unless the value maps runs tables to steps."""
    if not isinstance(steps, dict) or not all(type(step) is int and step >= -1 for step in steps.values()):
        raise ValueError('built_from must be an object that maps runs tables to steps: {"keys/origin": 7}')


def _check_horizon(tick: Any) -> None:
    """ValueError unless the value is a tick of some time."""
    if type(tick) is not int or abs(tick) >= 2**63:
        raise ValueError("horizon must be the number of a tick, such as 20000")


def _check_dropped(moments: Any) -> None:
    """ValueError unless the value maps runs tables to moments in microseconds since 1970."""
    if not isinstance(moments, dict) or not all(
        is_runs_table(name) and type(moment) is int and moment >= 0 for name, moment in moments.items()
    ):
        raise ValueError(
            'dropped must be an object that maps runs tables to microseconds: {"runs/delay": 1764000000}'
        )


def _check_added_columns(moments: Any) -> None:
    """ValueError unless the value maps names of columns to moments in microseconds since 1970."""
    if not isinstance(moments, dict) or not all(
        name and type(moment) is int and moment >= 0 for name, moment in moments.items()
    ):
        raise ValueError(
            'added_columns must be an object that maps columns to microseconds: {"tip": 1764000000}'
        )


def _check_earlier_names(names: Any) -> None:
    """ValueError unless the value maps names of columns to lists of names, whose first ones differ."""
    if (
        not isinstance(names, dict)
        or not all(name and is_list_of_names(earlier) for name, earlier in names.items())
        or len({earlier[0].lower() for earlier in names.values()}) < len(names)
    ):
        raise ValueError('earlier_names must map columns to lists of their earlier names: {"tip": ["extra"]}')


def _check_rotation(rotation: Any) -> None:
    """ValueError unless the value is empty, or has a fingerprint, stored names, a step and a moment."""
    if rotation == {}:
        return
    kinds = {"fingerprint": str, "columns": dict, "step": int, "at": int}
    if (
        not isinstance(rotation, dict)
        or {name: type(value) for name, value in rotation.items()} != kinds
        or not is_fingerprint(rotation["fingerprint"])
        or not is_list_of_names([*rotation["columns"].values()])
    ):
        raise ValueError(f"rotation must have {', '.join(kinds)}")


def _check_fingerprint(text: Any) -> None:
    """ValueError unless the value is a fingerprint."""
    if not is_fingerprint(text):
        raise ValueError("fingerprint must be 32 hexadecimal digits")


# What alter, repair, loads and expiry write beside the options, and its check. Each is absent while it
# is empty or None.
BESIDE: Mapping[str, Callable[[Any], None]] = {
    "built_from": _check_built_from,
    "dropped": _check_dropped,
    "added_columns": _check_added_columns,
    "features": features.check,
    "horizon": _check_horizon,
    "fingerprint": _check_fingerprint,
    "earlier_names": _check_earlier_names,
    "rotation": _check_rotation,
}


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
                BESIDE[name](values[name])
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
