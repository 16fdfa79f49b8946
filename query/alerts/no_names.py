"""Alerts on private columns take tokens only: their text is in notices, logs and the file of states."""

from __future__ import annotations

from typing import Any

from tidemark.query.alerts.condition import Comparison
from tidemark.query.groups.where_text import typed_groups
from tidemark.query.scans.computed import computed_values
from tidemark.query.scans.expressions import checked_expression
from tidemark.query.sql.named_call import as_list, key_values
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.private.secrets import tokens_alone
from tidemark.warehouse.settings.options import Options


def check_no_names(options: Options, asked: Comparison) -> None:
    """InputError for a condition with a value of a private column that is no token; reads nothing."""
    if not options.private:
        return
    if not options.columns:
        raise InputError("the warehouse has private columns, which are not known before its first batch.")
    columns, given = dict(options.columns), asked.given
    with tokens_alone():
        if isinstance(where := given.get("where"), str):
            checked_expression(where, columns)
        for text in (given.get("measure"), *(given.get("by") or ())):
            if isinstance(text, str):
                computed_values(options, text)
        for group in typed_groups(columns, given.get("by") or (), given.get("groups")) or ():
            for name, value in zip(given["by"], as_list(group), strict=False):
                _check_value(columns, name, value)
        if asked.question == "frequency" and options.keys:
            key = options.key_named(given.get("key"))
            for value in as_list(key_values(key, given.get("value"))):
                key.name_of(value)


def _check_value(columns: dict[str, str], name: str, value: Any) -> None:
    if name in columns:
        Key(name, columns[name]).name_of(value)
