"""Conditions as text, for callers that have only text: the command line, and maps of SQL."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from tidemark.warehouse.columns.column_types import find_column_type
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.text_values import parse_key
from tidemark.warehouse.errors import InputError, shortened
from tidemark.warehouse.settings.options import Options


def parse_where(options: Options, texts: Sequence[str]) -> str | dict[str, Any]:
    """The `where` of texts: each is COLUMN=VALUE, without quotes, or the only one is a condition in SQL.

    A column that is given several times has a list of values. A space on both sides of `=` is no part of the
    value. InputError for values that do not parse, and for a condition beside others.
    """
    columns = dict(options.columns)
    found: dict[str, list[str]] = {}
    for text in texts:
        name, equal, value = text.partition("=")
        if not equal or name.strip() not in columns or value.lstrip().startswith("'"):
            if len(texts) > 1:
                raise InputError(
                    f"where has {shortened(text)} beside other conditions. Give COLUMN=VALUE several times, "
                    "or one condition that has all of it, with AND."
                )
            return text
        spaced = name.endswith(" ") and value.startswith(" ")  # zip = 501
        found.setdefault(name.strip(), []).append(value[1:] if spaced else value)
    return typed_where(options, found)


def typed_where(options: Options, where: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping with text parsed by the types of the columns, and decimals as floats for doubles.

    In SQL the literal 0.1 is a decimal. Other values stay unchanged, and so do values of columns that do
    not exist or have other types: the question refuses them.
    """
    columns = dict(options.columns)
    return {name: _typed(_key(name, columns), value) for name, value in where.items()}


def _key(name: str, columns: Mapping[str, str]) -> Key | None:
    kind = find_column_type(columns[name]) if name in columns else None
    return Key(name, columns[name]) if kind is not None and kind.is_key else None


def _typed(key: Key | None, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_typed(key, item) for item in value]
    return value if key is None else typed_key(key, value)


def typed_key(key: Key, value: Any) -> Any:
    """A single value of a key of one column: text parsed, a decimal as a float for a double."""
    if isinstance(value, str):
        return parse_key(key, value)
    return float(value) if isinstance(value, Decimal) and key.is_double else value


def typed_groups(columns: Mapping[str, str], by: Sequence[str], groups: Any) -> Any:
    """The values of `groups` typed as those of `typed_where`, by the types of the columns.

    A group of several columns is a list, a mapping, or text in which commas separate the values.
    """
    keys = [_key(name, columns) for name in by]
    if not isinstance(groups, (list, tuple)):
        return groups  # the question refuses it
    return [_typed_group(by, keys, group) for group in groups]


def _typed_group(by: Sequence[str], keys: Sequence[Key | None], group: Any) -> Any:
    if isinstance(group, Mapping):
        group = [group[name] for name in (by if set(group) == set(by) else group)]
    elif isinstance(group, str) and len(by) > 1:
        group = next(csv.reader([group]), [])
    if not isinstance(group, (list, tuple)):
        return _typed(keys[0], group)
    if len(group) != len(by):
        return group  # the question refuses it
    return [_typed(key, item) for key, item in zip(keys, group, strict=True)]
