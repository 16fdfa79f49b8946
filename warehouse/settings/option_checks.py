"""What an option may be: the same for what a caller gives and for what the table properties hold.

Each check takes an option in its stored form and raises InputError, which says what came and what was
expected; `CHECKS` has them by the option's name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tidemark.warehouse.columns.ticks import LONGEST_US
from tidemark.warehouse.delta.store import folder_name
from tidemark.warehouse.errors import InputError

SYSTEM_COLUMNS = {"_source": "string", "_batch": "long", "_tick": "long"}

DEFAULT_EPS = 0.001
DEFAULT_KAPPA = 10
DEFAULT_KEY_EPS = 0.01
DEFAULT_KEY_DELTA = 0.01

# What a table without column mapping refuses in a name, and NUL, where C's text ends.
_UNFIT = re.compile(r"[ ,;{}()\n\t=\x00]")
_NAME_BYTES = 255  # of a folder's name on the usual file systems


def check_names(names: Iterable[str], what: str = "columns") -> None:
    """InputError where a column cannot have one of the names: tidemark's own, or one that Delta refuses."""
    given = list(names)
    reserved = [name for name in given if name.lower() in SYSTEM_COLUMNS]
    if reserved:
        raise InputError(f"the {what} {reserved} are tidemark's own. Rename them in the input.")
    unfit = [name for name in given if _UNFIT.search(name) or not _is_text(name)]
    if unfit:
        raise InputError(
            f"the {what} {unfit} cannot be stored: Delta takes no space, no ,;{{}}()=, no tab, no line "
            "break and no NUL in a name. Rename them in the input."
        )


def check_folders(measures: Iterable[str]) -> None:
    """InputError where a measure's name makes no folder that every file system and engine takes."""
    for name in measures:
        size = len(folder_name(name))
        if size > _NAME_BYTES:
            raise InputError(
                f"the measure {shortened(name)} makes a folder's name of {size} bytes; {_NAME_BYTES} at most "
                "can be kept. Give the column a shorter name in the input."
            )
        if name.lower() == "_delta_log":
            raise InputError(
                f"the measure {name!r} has the name of Delta's own folders. Rename it in the input."
            )


def _measures(names: Any) -> None:
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
        raise InputError(f"measures must be one or more column names, got {shortened(names)}.")
    if len({name.lower() for name in names}) < len(names):
        raise InputError(
            f"a measure is named twice: {shortened(names)}. Upper and lower case are one: "
            "name each column once."
        )
    check_names(names, "measures")


def _column(role: str) -> Callable[[Any], None]:
    def check(name: Any) -> None:
        if name is None:
            return
        if not isinstance(name, str) or not name:
            raise InputError(f"{role} must be a column's name, got {shortened(name)}.")
        check_names([name], f"{role} columns")

    return check


def _share(name: str, default: float) -> Callable[[Any], None]:
    def check(share: Any) -> None:
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share < 0.5:
            raise InputError(
                f"{name} must lie in (0, 0.5), got {shortened(share)}. {default} is the default."
            )

    return check


def _kappa(kappa: Any) -> None:
    if isinstance(kappa, bool) or not isinstance(kappa, int) or kappa < 2:
        raise InputError(
            f"kappa must be a whole number of at least 2, got {shortened(kappa)}. "
            f"{DEFAULT_KAPPA} is the default."
        )


def _tick(width: Any) -> None:
    if width is not None:  # a warehouse without a time column has none
        _microseconds("tick", 1)(width)


def _microseconds(name: str, least: int) -> Callable[[Any], None]:
    def check(width: Any) -> None:
        if isinstance(width, bool) or not isinstance(width, int) or not least <= width <= LONGEST_US:
            raise InputError(
                f"{name} must be a whole number of microseconds from {least} to {LONGEST_US}, "
                f"got {shortened(width)}."
            )

    return check


CHECKS: Mapping[str, Callable[[Any], None]] = {
    "measures": _measures,
    "key": _column("key"),
    "time": _column("time"),
    "tick": _tick,
    "eps": _share("eps", DEFAULT_EPS),
    "kappa": _kappa,
    "grace": _microseconds("grace", 0),
    "key_eps": _share("key_eps", DEFAULT_KEY_EPS),
    "key_delta": _share("key_delta", DEFAULT_KEY_DELTA),
}


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:  # half of a character
        return False
    return True


def shortened(value: Any) -> str:
    """The value as an error says it, cut where it is long."""
    said = repr(value)
    return said if len(said) <= 100 else f"{said[:97]}..."
