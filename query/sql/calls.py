"""Calls of SQL functions: what the arguments mean, whatever their order.

The first parameter of a function is its subject (phi, x, a key ...). What else is given by position is told
by what it is: a measure's name, a mode, a span such as '7d' (the window's `last`). By name, `since` and
`until` (exclusive) give a window, too. NULL is as good as not given, except as a subject that the function
needs: of nothing it returns no rows, as SQL's strict functions do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from tidemark.query.keys.frequencies import MODES as KEY_MODES
from tidemark.query.quantiles.rank_search import MODES
from tidemark.warehouse.columns.ticks import parse_duration
from tidemark.warehouse.errors import InputError

_WINDOW = ("last", "since", "until", "mode")


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes.

    `subjects` are its first parameters; those that are `needed` have no default. Where they are `untold`,
    any value may be one, so they come first. `of_measure` functions take a measure.
    """

    subjects: tuple[str, ...]
    needed: bool
    of_measure: bool
    untold: bool = False

    @property
    def modes(self) -> Sequence[str]:
        """The modes there are."""
        return MODES if self.of_measure else KEY_MODES

    @property
    def parameters(self) -> tuple[str, ...]:
        """All parameters by name."""
        return (*self.subjects, *(("measure",) if self.of_measure else ()), *_WINDOW)


SIGNATURES = {
    "quantile": Signature(("phi",), needed=True, of_measure=True),
    "rank": Signature(("x",), needed=True, of_measure=True),
    "cdf": Signature(("x",), needed=False, of_measure=True),
    "histogram": Signature(("bins",), needed=False, of_measure=True),
    "frequency": Signature(("key",), needed=True, of_measure=False, untold=True),
    "heavy_hitters": Signature(("phi",), needed=True, of_measure=False),
    "top": Signature(("k",), needed=False, of_measure=False),
    "key_range": Signature(("low", "high"), needed=False, of_measure=False, untold=True),
    "self_join": Signature((), needed=False, of_measure=False),
}


def understood(
    name: str, measures: Sequence[str], args: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The arguments by name, those that are NULL left out; None where a subject that is needed is NULL.

    `last` is a number where a number was given; a window by `since` and `until` comes as `between`.
    """
    signature = SIGNATURES[name]
    needed = signature.subjects[0] if signature.needed else None
    found = {role: value for role, value in named.items() if value is not None or role == needed}
    unknown = [one for one in named if one not in signature.parameters]
    if unknown:
        raise InputError(
            f"{name} has no parameter {unknown[0]!r}. It has: {', '.join(signature.parameters)}."
        )
    for value in args:
        role = _role(name, signature, measures, value, found)
        if role:
            found[role] = value
    if needed and needed not in found:
        raise InputError(f"{name} needs {needed}, such as {_EXAMPLES[name]}.")
    if needed and found[needed] is None:
        return None
    given = {role: _plain(value) for role, value in found.items() if value is not None}
    return _with_window(given)


_EXAMPLES = {"quantile": "0.99", "rank": "60", "frequency": "a key", "heavy_hitters": "0.01"}


def _role(
    name: str, signature: Signature, measures: Sequence[str], value: Any, found: Mapping[str, Any]
) -> str | None:
    """The parameter that a value by position is for; None for a NULL that is as good as not given."""
    open_subject = next((one for one in signature.subjects if one not in found), None)
    if open_subject and (signature.untold or (value is None and signature.needed)):
        return open_subject
    if value is None:
        return None
    role = _told_by(signature, measures, value)
    if open_subject and (role is None or (role == "last" and isinstance(value, (int, Decimal)))):
        return open_subject
    if role is None:
        kinds = ["a measure"] * signature.of_measure + ["a mode", "a span such as '7d'"]
        known = ", ".join([*(measures if signature.of_measure else ()), *signature.modes])
        raise InputError(f"{name}: {value!r} is not {', '.join(kinds)}. There are: {known}.")
    if role in found:
        raise InputError(f"{name}: {role} is given twice, as {found[role]!r} and as {value!r}.")
    return role


def _told_by(signature: Signature, measures: Sequence[str], value: Any) -> str | None:
    if isinstance(value, str):
        if signature.of_measure and value in measures:
            return "measure"
        if value in signature.modes:
            return "mode"
        with suppress(InputError):
            parse_duration(value)
            return "last"
        return None
    number = isinstance(value, (int, Decimal)) and not isinstance(value, bool)
    return "last" if number or isinstance(value, timedelta) else None


def _plain(value: Any) -> Any:
    """A value as the Python API takes it: Spark gives a moment in the worker's own time zone."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value.astimezone() if isinstance(value, datetime) and value.tzinfo is None else value


def _with_window(given: dict[str, Any]) -> dict[str, Any]:
    ends = [given.pop(end, None) for end in ("since", "until")]
    if any(end is not None for end in ends):
        given["between"] = tuple(_whole(end) for end in ends)
    if "last" in given:
        given["last"] = _whole(given["last"])
    return given


def _whole(value: Any) -> Any:
    """A whole number as an int: steps, where a warehouse has no time column."""
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    return int(value) if isinstance(value, Decimal) and value == int(value) else value
