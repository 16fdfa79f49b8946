"""Which columns and folders options may name, and which values other properties of `events` may have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from tidemark.warehouse.delta.table_names import folder_name, group_folder, is_runs_table
from tidemark.warehouse.errors import InputError, shortened
from tidemark.warehouse.private.secrets import is_fingerprint

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


def check_built_from(steps: Any) -> None:
    """ValueError unless the value maps runs tables to steps."""
    if not isinstance(steps, dict) or not all(type(step) is int and step >= -1 for step in steps.values()):
        raise ValueError('built_from must be an object that maps runs tables to steps: {"keys/origin": 7}')


def check_horizon(tick: Any) -> None:
    """ValueError unless the value is a tick of some time."""
    if type(tick) is not int or abs(tick) >= 2**63:
        raise ValueError("horizon must be the number of a tick, such as 20000")


def check_dropped(moments: Any) -> None:
    """ValueError unless the value maps runs tables to moments in microseconds since 1970."""
    if not isinstance(moments, dict) or not all(
        is_runs_table(name) and type(moment) is int and moment >= 0 for name, moment in moments.items()
    ):
        raise ValueError(
            'dropped must be an object that maps runs tables to microseconds: {"runs/delay": 1764000000}'
        )


def check_added_columns(moments: Any) -> None:
    """ValueError unless the value maps names of columns to moments in microseconds since 1970."""
    if not isinstance(moments, dict) or not all(
        name and type(moment) is int and moment >= 0 for name, moment in moments.items()
    ):
        raise ValueError(
            'added_columns must be an object that maps columns to microseconds: {"tip": 1764000000}'
        )


def check_earlier_names(names: Any) -> None:
    """ValueError unless the value maps names of columns to lists of names, whose first ones differ."""
    if (
        not isinstance(names, dict)
        or not all(name and is_list_of_names(earlier) for name, earlier in names.items())
        or len({earlier[0].lower() for earlier in names.values()}) < len(names)
    ):
        raise ValueError('earlier_names must map columns to lists of their earlier names: {"tip": ["extra"]}')


def check_rotation(rotation: Any) -> None:
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


def is_unicode(text: str) -> bool:
    """Whether the text can be stored: it has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
