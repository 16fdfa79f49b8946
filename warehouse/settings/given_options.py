"""Options as callers give them, and the fields of `Options` that follow from these."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any, TypeAlias

from tidemark.option_table import OPTIONS
from tidemark.warehouse.errors import InputError, shortened
from tidemark.warehouse.settings.allowed_columns import is_list_of_names
from tidemark.warehouse.settings.option_kinds import KINDS, as_lists

Columns: TypeAlias = tuple[str, ...]  # the names of the columns of a key


def columns_of_key(columns: Any) -> Columns:
    """The columns of a key that is named by one column or by a list of them; InputError for others."""
    names = as_lists([columns])
    if not is_list_of_names(names[0]):
        raise InputError(f"a key is named by its column or a list of its columns, got {shortened(columns)}.")
    if len(set(names[0])) < len(names[0]):
        raise InputError(f"a key names a column twice: {shortened(columns)}. Name each column once.")
    return tuple(names[0])


def parse_options(**given: Any) -> dict[str, Any]:
    """The caller's options in stored form, by name; None means not given and stays None.

    `measures` is a name or an iterable of names; an item of `keys` and `groups` is a name, or a list of names
    for several columns; `companions` maps names to (kind, column); `tick` and `grace` are durations as text.
    `key` goes first in `keys`.

    Raises InputError for an invalid value.
    """
    key = given.pop("key", None)
    parsed = {
        name: None if value is None else KINDS[OPTIONS[name].kind].parse(value)
        for name, value in {**dict.fromkeys(OPTIONS), **given}.items()
    }
    if key is not None:
        first = as_lists([key])
        parsed["keys"] = [*first, *(columns for columns in parsed["keys"] or () if columns not in first)]
    if parsed["private"] is True:
        columns = chain.from_iterable([*(parsed["keys"] or ()), *(parsed["groups"] or ())])
        parsed["private"] = list(dict.fromkeys(columns))
        if not parsed["private"]:
            raise InputError("private=True means the columns of keys and groups; there is none. Name one.")
    for name, value in parsed.items():
        if value is not None:
            KINDS[OPTIONS[name].kind].check(OPTIONS[name], value)
    return parsed


def default_of(name: str) -> Any:
    """The default of an option in stored form, None if it has none."""
    option = OPTIONS[name]
    return None if option.default is None else KINDS[option.kind].parse(option.default)


def fields_of(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of Options from the stored forms of all options, by name."""
    return {OPTIONS[name].field: KINDS[OPTIONS[name].kind].as_field(value) for name, value in stored.items()}
