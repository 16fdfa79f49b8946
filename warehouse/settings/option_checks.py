"""The valid values of each option. The same checks apply to callers' options and to the table's properties.

A check takes the stored form of an option and raises InputError if it is not valid. `CHECKS` maps the name of
an option to its check.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tidemark.warehouse.columns.ticks import LONGEST_US, MONDAY_US
from tidemark.warehouse.companions.kinds import NAME
from tidemark.warehouse.delta.store import folder_name, group_folder
from tidemark.warehouse.errors import InputError, shortened, whole_number

SYSTEM_COLUMNS = {"_source": "string", "_batch": "long", "_tick": "long"}

DEFAULT_EPS = 0.001
DEFAULT_KAPPA = 10
DEFAULT_KEY_EPS = 0.01
DEFAULT_KEY_DELTA = 0.01

# Delta tables without column mapping refuse these characters in a column name; NUL ends a C string.
_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=\x00]")
_PARTS = 16  # summaries have a part of the error, which is no number below the least double
_MAX_FOLDER_BYTES = 255  # the limit of the usual file systems for the name of a folder


def check_names(names: Iterable[str], role: str = "columns") -> None:
    """InputError if a column name is reserved by tidemark or refused by Delta; `role` is for the message."""
    names = list(names)
    reserved = [name for name in names if name.lower() in SYSTEM_COLUMNS]
    if reserved:
        raise InputError(
            f"the {role} {reserved} have the names of tidemark's own columns. Rename them in the input."
        )
    forbidden = [name for name in names if _FORBIDDEN.search(name) or not _is_unicode(name)]
    if forbidden:
        raise InputError(
            f"the {role} {forbidden} cannot be stored. Delta refuses names that have a space, a tab, a line "
            "break, NUL, or one of the characters ,;{}()=. Rename them in the input."
        )


def check_folders(measures: Iterable[str], groups: Iterable[Sequence[str]] = ()) -> None:
    """InputError if a measure or a group cannot be the name of a folder on every file system and engine."""
    measures = list(measures)
    folders = [(f"the measure {shortened(name)}", folder_name(name)) for name in measures]
    folders += [(f"the group {shortened(', '.join(columns))}", group_folder(columns)) for columns in groups]
    for owner, folder in folders:
        if len(folder) > _MAX_FOLDER_BYTES:
            raise InputError(
                f"the folder of {owner} would have a name of {len(folder)} bytes, expected at "
                f"most {_MAX_FOLDER_BYTES}. Give the column a shorter name in the input."
            )
    for name in measures:
        if name.lower() == "_delta_log":
            raise InputError(
                f"the measure {name!r} has the name of Delta's own log folders. Rename it in the input."
            )


def _check_measures(names: Any) -> None:
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
        raise InputError(f"measures must be one or more column names, got {shortened(names)}.")
    if len({name.lower() for name in names}) < len(names):
        raise InputError(
            f"a measure is named twice: {shortened(names)}. Names that differ only in case are equal. "
            "Name each column once."
        )
    check_names(names, "measures")


def _column_check(role: str) -> Callable[[Any], None]:
    def check(name: Any) -> None:
        if name is None:
            return
        if not isinstance(name, str) or not name:
            raise InputError(f"{role} must be the name of a column, got {shortened(name)}.")
        check_names([name], f"{role} columns")

    return check


def _columns_check(role: str) -> Callable[[Any], None]:
    """Checks lists of columns, each a key: `[["origin"], ["origin", "dest"]]`."""

    def check(keys: Any) -> None:
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

    return check


def _check_companions(companions: Any) -> None:
    if not isinstance(companions, dict) or not all(
        isinstance(text, str) and NAME.fullmatch(text)
        for name, declared in companions.items()
        for text in (name, declared[0] if _is_pair_of_names(declared) else None)
    ):
        raise InputError(
            "companions must map names to a kind and a column, the names and kinds of letters, digits and _, "
            f"got {shortened(companions)}. Example: companions={{'users': ('hll', 'user_id')}}."
        )
    check_names([column for _, column in companions.values()], "columns of companions")


def _is_pair_of_names(declared: Any) -> bool:
    return is_list_of_names(declared) and len(declared) == 2


def is_list_of_names(columns: Any) -> bool:
    """Whether the value is a list of at least one name."""
    return isinstance(columns, list) and bool(columns) and all(isinstance(n, str) and n for n in columns)


def _repeats(names: list[str]) -> bool:
    return len({name.lower() for name in names}) < len(names)


def _fraction_check(name: str, default: float) -> Callable[[Any], None]:
    def check(fraction: Any) -> None:
        number = isinstance(fraction, (int, float)) and not isinstance(fraction, bool)
        if not number or not 0 < fraction < 0.5 or not fraction / _PARTS:
            raise InputError(
                f"{name} must lie in (0, 0.5), got {shortened(fraction)}. {default} is the default."
            )

    return check


def _check_kappa(kappa: Any) -> None:
    whole_number("kappa", kappa, 2, hint=f"{DEFAULT_KAPPA} is the default.")


def _check_tick(tick_us: Any) -> None:
    if tick_us is not None:  # None for a warehouse without a time column
        _duration_check("tick", 1)(tick_us)


def _duration_check(name: str, least: int) -> Callable[[Any], None]:
    def check(duration_us: Any) -> None:
        whole_number(f"the microseconds of {name}", duration_us, least, LONGEST_US)

    return check


def check_built_from(steps: Any) -> None:
    """ValueError unless the value maps runs tables to steps."""
    if not isinstance(steps, dict) or not all(type(step) is int and step >= -1 for step in steps.values()):
        raise ValueError('built_from must be an object that maps runs tables to steps: {"keys": 7}')


def check_tick_origin(origin: Any) -> None:
    """ValueError unless ticks count from 1970, or from its first Monday."""
    if type(origin) is not int or origin not in (0, MONDAY_US):
        raise ValueError(f"tick_origin_us must be 0 or {MONDAY_US}, a Monday")


CHECKS: Mapping[str, Callable[[Any], None]] = {
    "measures": _check_measures,
    "key": _column_check("key"),
    "keys": _columns_check("keys"),
    "groups": _columns_check("groups"),
    "companions": _check_companions,
    "time": _column_check("time"),
    "tick": _check_tick,
    "eps": _fraction_check("eps", DEFAULT_EPS),
    "kappa": _check_kappa,
    "grace": _duration_check("grace", 0),
    "key_eps": _fraction_check("key_eps", DEFAULT_KEY_EPS),
    "key_delta": _fraction_check("key_delta", DEFAULT_KEY_DELTA),
}


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True
