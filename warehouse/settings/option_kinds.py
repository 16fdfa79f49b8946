"""What the values of options are: how a caller's are parsed, which are valid, and how they are stored.

The *stored form* of an option is JSON: it is the property of `events`, and what is compared. The same checks
apply to callers' options and to the table's properties.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidemark.options import Option
from tidemark.warehouse.columns.scalars import plain, plain_share
from tidemark.warehouse.columns.ticks import LONGEST_US, parse_duration, parse_grace
from tidemark.warehouse.companions.declared import Companion
from tidemark.warehouse.companions.kinds import NAME
from tidemark.warehouse.errors import InputError, shortened, whole_number
from tidemark.warehouse.settings.option_checks import check_names, is_list_of_names

_FOREVER = 0  # the stored form of a retention without an end
_PARTS = 16  # summaries have a part of the error, which is no number below the least double


@dataclass(frozen=True, slots=True)
class Kind:
    """What the values of an option are.

    parse      the stored form of what a caller gives; what cannot be parsed may stay for `check`
    check      InputError unless the stored form is valid
    as_field   the stored form as a field of Options
    as_stored  the stored form of the field
    columns    the columns that the field names
    """

    parse: Callable[[Any], Any]
    check: Callable[[Option, Any], None]
    as_field: Callable[[Any], Any] = lambda stored: stored
    as_stored: Callable[[Any], Any] = lambda field: field
    columns: Callable[[Any], list[str]] = lambda _: []


def as_lists(keys: Any) -> Any:
    """Lists of columns from a name, or from names and lists of names; anything else stays as it is."""
    if isinstance(keys, str):
        return [[keys]]
    if not isinstance(keys, Iterable):
        return [keys]
    return [
        [item] if isinstance(item, str) else list(item) if isinstance(item, Iterable) else item
        for item in keys
    ]


def _as_list(names: Any) -> list[Any]:
    """A list of names from a name or names; anything else is its item, for the check."""
    return list(names) if isinstance(names, Iterable) and not isinstance(names, str) else [names]


def _as_dict(companions: Any) -> Any:
    """A dict of lists from a mapping of names to (kind, column); anything else stays as it is."""
    if not isinstance(companions, Mapping):
        return companions
    return {
        name: list(declared) if isinstance(declared, (tuple, list)) else declared
        for name, declared in companions.items()
    }


def _check_measures(option: Option, names: Any) -> None:
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
        raise InputError(f"{option.name} must be one or more column names, got {shortened(names)}.")
    if len({name.lower() for name in names}) < len(names):
        raise InputError(
            f"a measure is named twice: {shortened(names)}. Names that differ only in case are equal. "
            "Name each column once."
        )
    check_names(names, option.name)


def _check_column(option: Option, name: Any) -> None:
    if name is None:
        return
    if not isinstance(name, str) or not name:
        raise InputError(f"{option.name} must be the name of a column, got {shortened(name)}.")
    check_names([name], f"{option.name} columns")


def _check_keys(option: Option, keys: Any) -> None:
    """Lists of columns, each a key: `[["origin"], ["origin", "dest"]]`."""
    role = option.name
    if not isinstance(keys, list) or not all(map(is_list_of_names, keys)):
        raise InputError(
            f"{role} must be a list of column names, or of lists of them for a key of several columns, "
            f"got {shortened(keys)}. Example: {role}=['origin', ['origin', 'dest']]."
        )
    sets = [frozenset(name.lower() for name in columns) for columns in keys]
    if len(set(sets)) < len(sets) or any(map(_repeats, keys)):
        raise InputError(
            f"{role} name the same columns twice: {shortened(keys)}. The order and the case of the names "
            "make no difference. Name each column once, and each set of columns once."
        )
    for columns in keys:
        check_names(columns, f"{role} columns")


def _repeats(names: list[str]) -> bool:
    return len({name.lower() for name in names}) < len(names)


def _check_companions(_: Option, companions: Any) -> None:
    if not isinstance(companions, dict) or not all(
        isinstance(text, str) and NAME.fullmatch(text)
        for name, declared in companions.items()
        for text in (name, declared[0] if is_list_of_names(declared) and len(declared) == 2 else None)
    ):
        raise InputError(
            "companions must map names to a kind and a column, the names and kinds of letters, digits and _, "
            f"got {shortened(companions)}. Example: companions={{'users': ('hll', 'user_id')}}."
        )
    check_names([column for _, column in companions.values()], "columns of companions")


def _check_share(option: Option, share: Any) -> None:
    number = isinstance(share, (int, float)) and not isinstance(share, bool)
    if not number or not 0 < share < 0.5 or not share / _PARTS:
        raise InputError(
            f"{option.name} must lie in (0, 0.5), got {shortened(share)}. {option.default} is the default."
        )


def _check_number(option: Option, number: Any) -> None:
    whole_number(option.name, number, option.least, hint=f"{option.default} is the default.")


def _check_span(option: Option, duration_us: Any) -> None:
    if duration_us is not None:  # None for a warehouse without a time column
        whole_number(f"the microseconds of {option.name}", duration_us, 1, LONGEST_US)


def _check_grace(option: Option, duration_us: Any) -> None:
    whole_number(f"the microseconds of {option.name}", duration_us, 0, LONGEST_US)


def _parse_retention(duration: Any) -> int:
    """Microseconds; _FOREVER for the word."""
    text = plain(duration)
    is_word = isinstance(text, str) and text.strip().lower() == "forever"
    return _FOREVER if is_word else parse_duration(text)


KINDS: Mapping[str, Kind] = {
    "names": Kind(_as_list, _check_measures, tuple, list, list),
    "column": Kind(lambda name: name, _check_column, columns=lambda name: [name] if name else []),
    "keys": Kind(
        as_lists,
        _check_keys,
        lambda keys: tuple(map(tuple, keys or ())),
        lambda keys: list(map(list, keys)),
        lambda keys: [name for columns in keys for name in columns],
    ),
    "companions": Kind(
        _as_dict,
        _check_companions,
        lambda stored: tuple(Companion(name, *declared) for name, declared in (stored or {}).items()),
        lambda companions: {one.name: [one.kind, one.column] for one in companions},
        lambda companions: [one.column for one in companions],
    ),
    "span": Kind(parse_duration, _check_span),
    "grace": Kind(parse_grace, _check_grace),
    "retention": Kind(
        _parse_retention, _check_grace, lambda stored: stored or None, lambda field: field or _FOREVER
    ),
    "share": Kind(plain_share, _check_share, float),
    "number": Kind(plain, _check_number),
}
