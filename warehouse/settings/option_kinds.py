"""Kinds of option values: how given values are parsed, which values are valid, and how they are stored.

The *stored form* of an option is JSON: it is the property of `events`, and what is compared. The same checks
apply to callers' options and to the table's properties.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemark.option_table import Option
from tidemark.warehouse.columns.scalars import is_sequence, plain, plain_share
from tidemark.warehouse.columns.ticks import LONGEST_US, parse_duration, parse_grace
from tidemark.warehouse.companions.declared import Companion
from tidemark.warehouse.companions.kinds import NAME
from tidemark.warehouse.errors import InputError, shortened, whole_number
from tidemark.warehouse.settings.allowed_columns import check_names, is_list_of_names

_FOREVER = 0  # the stored form of a retention without an end
_MOST_INCLUDED = 31  # columns of an index: two bits of each fit into an integer
_PARTS = 16  # summaries have a part of the error, which is no number below the least double


class Kind:
    """The kind of an option's values. By default the stored form is the field of Options."""

    def parse(self, given: Any) -> Any:
        """The stored form of a given value; a value that cannot be parsed may stay for `check`."""
        return given

    def check(self, option: Option, stored: Any) -> None:
        """InputError unless the stored form is valid."""
        raise NotImplementedError

    def as_field(self, stored: Any) -> Any:
        """The stored form as a field of Options."""
        return stored

    def as_stored(self, field: Any) -> Any:
        """The stored form of the field."""
        return field

    def columns(self, field: Any) -> list[str]:  # noqa: ARG002
        """The columns that the field names."""
        return []


def as_lists(keys: Any) -> Any:
    """Lists of columns from a name, or from names and lists of names; anything else stays as it is."""
    if isinstance(keys, str):
        return [[keys]]
    if not is_sequence(keys):
        return [keys]
    return [[item] if isinstance(item, str) else list(item) if is_sequence(item) else item for item in keys]


def _repeats(names: list[str]) -> bool:
    return len({name.lower() for name in names}) < len(names)


class _Names(Kind):
    def parse(self, given: Any) -> Any:
        """A list of names from a name or names; anything else becomes its only item, for the check."""
        return list(given) if is_sequence(given) else [given]

    def check(self, option: Option, stored: Any) -> None:
        if not isinstance(stored, list) or not stored or not all(isinstance(x, str) and x for x in stored):
            raise InputError(f"{option.name} must be one or more column names, got {shortened(stored)}.")
        if _repeats(stored):
            raise InputError(
                f"a column of {option.name} is named twice: {shortened(stored)}. Names that differ only in "
                "case are equal. Name each column once."
            )
        check_names(stored, option.name)

    def as_field(self, stored: Any) -> tuple[str, ...]:
        return tuple(stored or ())

    def as_stored(self, field: Any) -> Any:
        return list(field)

    def columns(self, field: Any) -> list[str]:
        return list(field)


class _Column(Kind):
    def check(self, option: Option, stored: Any) -> None:
        if stored is None:
            return
        if not isinstance(stored, str) or not stored:
            raise InputError(f"{option.name} must be the name of a column, got {shortened(stored)}.")
        check_names([stored], f"{option.name} columns")

    def columns(self, field: Any) -> list[str]:
        return [field] if field else []


class _Keys(Kind):
    """Lists of columns, each a key: `[["origin"], ["origin", "dest"]]`."""

    def parse(self, given: Any) -> Any:
        return as_lists(given)

    def check(self, option: Option, stored: Any) -> None:
        role = option.name
        if not isinstance(stored, list) or not all(map(is_list_of_names, stored)):
            raise InputError(
                f"{role} must be a list of column names, or of lists of them for a key of several columns, "
                f"got {shortened(stored)}. Example: {role}=['origin', ['origin', 'dest']]."
            )
        sets = [frozenset(name.lower() for name in columns) for columns in stored]
        if len(set(sets)) < len(sets) or any(map(_repeats, stored)):
            raise InputError(
                f"{role} name the same columns twice: {shortened(stored)}. The order and the case of the "
                "names make no difference. Name each column once, and each set of columns once."
            )
        for columns in stored:
            check_names(columns, f"{role} columns")

    def as_field(self, stored: Any) -> tuple[tuple[str, ...], ...]:
        return tuple(map(tuple, stored or ()))

    def as_stored(self, field: Any) -> list[list[str]]:
        return list(map(list, field))

    def columns(self, field: Any) -> list[str]:
        return [name for columns in field for name in columns]


class _Indexes(Kind):
    """Columns, and those beside them: `["page_rank", {"on": "date", "include": ["user"]}]`.

    The field has a tuple of columns for each, the one with the index first. As text: `date=user,price`, which
    is no column, because none has such characters.
    """

    def parse(self, given: Any) -> Any:
        return [self._parsed(item) for item in (given if is_sequence(given) else [given])]

    def _parsed(self, item: Any) -> Any:
        if isinstance(item, str) and "=" in item:
            on, included = item.split("=", 1)
            item = {"on": on.strip(), "include": [name.strip() for name in included.split(",")]}
        if not isinstance(item, Mapping):
            return item
        found = dict(item)
        if isinstance(found.get("include"), str):
            found["include"] = [found["include"]]
        elif is_sequence(found.get("include")):
            found["include"] = list(found["include"])
        return found["on"] if found.keys() <= {"on", "include"} and not found.get("include", 1) else found

    def check(self, option: Option, stored: Any) -> None:
        if not isinstance(stored, list) or not all(map(_is_index, stored)):
            raise InputError(
                f"{option.name} must be column names, or mappings of on to a column and include to a list of "
                f"columns, got {shortened(stored)}. Example: {option.name}=['user', {{'on': 'date', "
                "'include': ['user', 'price']}]."
            )
        indexes = self.as_field(stored)
        for columns in ([one[0] for one in indexes], *indexes):
            if _repeats([*columns]):
                raise InputError(
                    f"a column of {option.name} is named twice: {shortened(stored)}. Names that differ only "
                    "in case are equal. Name each column once, and each with an index once."
                )
            check_names(columns, f"{option.name} columns")
        if any(len(columns) > 1 + _MOST_INCLUDED for columns in indexes):
            raise InputError(f"an index includes at most {_MOST_INCLUDED} columns, got {shortened(stored)}.")

    def as_field(self, stored: Any) -> tuple[tuple[str, ...], ...]:
        return tuple((one,) if isinstance(one, str) else (one["on"], *one["include"]) for one in stored or ())

    def as_stored(self, field: Any) -> list[Any]:
        return [on if not beside else {"on": on, "include": beside} for on, *beside in field]

    def columns(self, field: Any) -> list[str]:
        return list(dict.fromkeys(name for columns in field for name in columns))


def _is_index(stored: Any) -> bool:
    if isinstance(stored, Mapping):
        is_whole = stored.keys() == {"on", "include"} and is_list_of_names(stored["include"])
        return is_whole and isinstance(stored["on"], str) and bool(stored["on"])
    return isinstance(stored, str) and bool(stored)


class _Private(_Names):
    """A list of columns; True is replaced by those of the keys before it is stored."""

    def parse(self, given: Any) -> Any:
        if isinstance(given, bool):
            return given or None
        return [given] if isinstance(given, str) else list(given) if is_sequence(given) else given

    def check(self, option: Option, stored: Any) -> None:
        if stored is None or stored is True:
            return
        if not is_list_of_names(stored) or _repeats(stored):
            raise InputError(
                f"{option.name} must be True or a list of column names, each once, got {shortened(stored)}."
            )
        check_names(stored, "private columns")

    def as_stored(self, field: Any) -> Any:
        return list(field) or None


class _Companions(Kind):
    def parse(self, given: Any) -> Any:
        """A dict of lists from a mapping of names to (kind, column); anything else stays as it is."""
        if not isinstance(given, Mapping):
            return given
        return {
            name: list(declared) if isinstance(declared, (tuple, list)) else declared
            for name, declared in given.items()
        }

    def check(self, option: Option, stored: Any) -> None:  # noqa: ARG002
        if not isinstance(stored, dict) or not all(
            isinstance(text, str) and NAME.fullmatch(text)
            for name, declared in stored.items()
            for text in (name, declared[0] if is_list_of_names(declared) and len(declared) == 2 else None)
        ):
            raise InputError(
                "companions must map names to a kind and a column, the names and kinds of letters, digits "
                f"and _, got {shortened(stored)}. Example: companions={{'users': ('hll', 'user_id')}}."
            )
        check_names([column for _, column in stored.values()], "columns of companions")

    def as_field(self, stored: Any) -> tuple[Companion, ...]:
        return tuple(Companion(name, *declared) for name, declared in (stored or {}).items())

    def as_stored(self, field: Any) -> dict[str, list[str]]:
        return {one.name: [one.kind, one.column] for one in field}

    def columns(self, field: Any) -> list[str]:
        return [one.column for one in field]


class _Span(Kind):
    def parse(self, given: Any) -> int:
        return parse_duration(given)

    def check(self, option: Option, stored: Any) -> None:
        if stored is not None:  # None for a warehouse without a time column
            whole_number(f"the microseconds of {option.name}", stored, 1, LONGEST_US)


class _Grace(Kind):
    def parse(self, given: Any) -> int:
        return parse_grace(given)

    def check(self, option: Option, stored: Any) -> None:
        whole_number(f"the microseconds of {option.name}", stored, 0, LONGEST_US)


class _Retention(_Grace):
    """Microseconds; _FOREVER for the word."""

    def parse(self, given: Any) -> int:
        text = plain(given)
        is_word = isinstance(text, str) and text.strip().lower() == "forever"
        return _FOREVER if is_word else parse_duration(text)

    def as_field(self, stored: Any) -> int | None:
        return stored or None

    def as_stored(self, field: Any) -> int:
        return field or _FOREVER


class _Share(Kind):
    def parse(self, given: Any) -> Any:
        return plain_share(given)

    def check(self, option: Option, stored: Any) -> None:
        number = isinstance(stored, (int, float)) and not isinstance(stored, bool)
        if not number or not 0 < stored < 0.5 or not stored / _PARTS:
            raise InputError(
                f"{option.name} must lie in (0, 0.5), got {shortened(stored)}. "
                f"{option.default} is the default."
            )

    def as_field(self, stored: Any) -> float:
        return float(stored)


class _Number(Kind):
    def parse(self, given: Any) -> Any:
        return plain(given)

    def check(self, option: Option, stored: Any) -> None:
        whole_number(option.name, stored, option.least, hint=f"{option.default} is the default.")


KINDS: Mapping[str, Kind] = {
    "names": _Names(),
    "column": _Column(),
    "indexes": _Indexes(),
    "keys": _Keys(),
    "companions": _Companions(),
    "private": _Private(),
    "span": _Span(),
    "grace": _Grace(),
    "retention": _Retention(),
    "share": _Share(),
    "number": _Number(),
}
