"""Which columns and folders options may name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidemark.warehouse.columns.column_types import (
    find_column_type,
    is_time_type,
    time_type_names,
    type_text,
)
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.delta.table_names import folder_name, group_folder
from tidemark.warehouse.errors import InputError, shortened

SYSTEM_COLUMNS = {"_source": "string", "_batch": "long", "_tick": "long"}

# Delta tables without column mapping refuse these characters in a column name; NUL ends a C string.
_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=\x00]")
_MAX_FOLDER_BYTES = 255  # the limit of the usual file systems for the name of a folder


def check_names(names: Iterable[str], role: str = "columns") -> None:
    """InputError if a column name is reserved by tidemark or refused by Delta; `role` is for the message."""
    names = list(names)
    reserved = [name for name in names if name.lower() in SYSTEM_COLUMNS]
    if reserved:
        raise InputError(
            f"the {role} {reserved} have the names of tidemark's own columns. Rename them in the input."
        )
    forbidden = [name for name in names if _FORBIDDEN.search(name) or not is_unicode(name)]
    if forbidden:
        raise InputError(
            f"the {role} {forbidden} cannot be stored. Delta refuses names that have a space, a tab, a line "
            "break, NUL, or one of the characters ,;{}()=. Rename them in the input."
        )


def check_folders(measures: Iterable[str], keys: Iterable[Sequence[str]]) -> None:
    """InputError if a measure or a key cannot be the name of a folder on every file system and engine."""
    folders = [(f"the measure {shortened(name)}", folder_name(name)) for name in measures]
    folders += [(f"the key {shortened(', '.join(columns))}", group_folder(columns)) for columns in keys]
    for owner, folder in folders:
        if len(folder) > _MAX_FOLDER_BYTES:
            raise InputError(
                f"the folder of {owner} would have a name of {len(folder)} bytes, expected at "
                f"most {_MAX_FOLDER_BYTES}. Give the column a shorter name in the input."
            )
        if folder.lower() == "_delta_log":
            raise InputError(f"{owner} has the name of Delta's own log folders. Rename it in the input.")


def is_list_of_names(columns: Any) -> bool:
    """Whether the value is a list of at least one name."""
    return isinstance(columns, list) and bool(columns) and all(isinstance(n, str) and n for n in columns)


def is_unicode(text: str) -> bool:
    """Whether the text can be stored: it has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_role(role: str, names: Sequence[str], columns: Mapping[str, str]) -> None:
    """InputError if a column of the role, which is an option's name, is missing or has a wrong type."""
    for name in names:
        if name not in columns:
            raise InputError(
                f"the {role.removesuffix('s')} column {name!r} is missing. "
                f"There are: {', '.join(columns) or 'none'}."
            )
        if role == "private":
            kind = find_column_type(columns[name])
            if kind is None or not kind.is_token:
                raise InputError(
                    f"the private column {name!r} is of type {columns[name]}, expected text, binary or whole "
                    "numbers, of which tokens are made."
                )
        elif role == "measures":
            Measure(name, columns[name])
        elif role == "companions":
            continue  # a column of any type
        elif role != "time":
            Key(name, columns[name])
        elif not is_time_type(columns[name]):
            raise InputError(
                f"the time column {name!r} is {type_text(columns[name])}. Expected {time_type_names()}."
            )
