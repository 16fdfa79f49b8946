"""Renames of columns: how the options change (columns/column_names.py has the model).

A call that is repeated changes nothing. So two columns cannot exchange their names by one call: repeated, it
would exchange them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidemark.warehouse.errors import InputError, shortened
from tidemark.warehouse.settings import features
from tidemark.warehouse.settings.allowed_columns import check_names
from tidemark.warehouse.settings.options import Options


def new_names(rename: Any) -> dict[str, str]:
    """New names by old ones; InputError unless `rename` maps names to other names."""
    if (
        not isinstance(rename, Mapping)
        or not rename
        or not all(isinstance(text, str) and text for pair in rename.items() for text in pair)
        or any(old == new for old, new in rename.items())
    ):
        raise InputError(
            f"rename must map names of columns to other names, got {shortened(rename)}. Example: "
            "rename={'qty': 'quantity'}."
        )
    for name in rename.values():
        if any(name.lower() == old.lower() for old, new in rename.items() if new != name):
            raise InputError(  # the same call, repeated, would rename the other column
                f"{name!r} is the name of one column and is to become that of another in the same call. "
                "Nothing was changed. Rename the first one in a call of its own before."
            )
    return dict(rename)


def renamed(options: Options, names: Mapping[str, str]) -> Options:
    """The options with columns renamed, all at once; `names` maps present names to new ones.

    The same options if all columns got these names before. InputError for a column that is not there, and
    for a new name that is not allowed or is that of another column (upper and lower case are one).
    """
    if not options.columns:
        raise InputError("the warehouse has no columns yet. Name them in its first batch.")
    there, known = [name for name, _ in options.columns], options.earlier_names
    if all(old not in there and old in known.get(new, ()) for old, new in names.items()):
        return options
    for old in names:
        if old not in there:
            raise InputError(f"there is no column {shortened(old)} to rename. There are: {', '.join(there)}.")

    def new(name: str) -> str:
        return names.get(name, name)

    if options.private:
        raise InputError(
            "a warehouse with private columns keeps the names of its columns. Nothing was changed. Select "
            "them under other names in the input of another warehouse."
        )
    check_names(names.values(), "new names")
    after = [new(name) for name in there]
    twice = [name for name in names.values() if [one.lower() for one in after].count(name.lower()) > 1]
    if twice:
        raise InputError(
            f"two columns would have the name {twice[0]!r} (upper and lower case are one). Nothing was "
            "changed."
        )
    earlier = {new(name): names_before for name, names_before in known.items()}
    for old, name in names.items():
        before = known.get(old, [old])
        earlier[name] = [*before, *([old] if old not in before else [])]
    return replace(
        options,
        columns=tuple((new(name), kind) for name, kind in options.columns),
        measure_names=tuple(map(new, options.measure_names)),
        time=options.time and new(options.time),
        own_keys=tuple(tuple(map(new, columns)) for columns in options.own_keys),
        group_names=tuple(tuple(map(new, columns)) for columns in options.group_names),
        index_columns=tuple(tuple(map(new, columns)) for columns in options.index_columns),
        companion_names=tuple(replace(one, column=new(one.column)) for one in options.companion_names),
        added_columns={new(name): moment for name, moment in options.added_columns.items()},
        earlier_names=earlier,
    ).with_feature(features.RENAMED_COLUMNS)
