"""Arguments of SQL function calls: which parameter each argument is for, in any order.

The first parameter of a function is its subject (phi, x, a key ...). Other positional arguments are
recognized by their value: the name of a measure, a mode, a duration such as '7d' (the parameter `last`), a
map (the parameter `where`). The named parameters `since` and `until` (exclusive) give a window, too, `as_of`
the moment that `last` counts back from, and `other_since` and `other_until` the second window of `overlap`.
The other parameters about groups (`by`, `top`, `groups`, `limit`, `order`, `least_rows`), `every`, `width`,
`slot`, `most`, `separator` and `key` are named ones. NULL means that the argument is not given. But NULL for
a required subject yields no rows, as in SQL's strict functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from tidemark.query.reading.modes import KEY_MODES, MODES
from tidemark.warehouse.columns.text_values import is_whole, parse_columns
from tidemark.warehouse.columns.ticks import parse_duration
from tidemark.warehouse.errors import InputError, shortened

_WINDOW = ("last", "as_of", "since", "until", "mode", "every")
_SLOTS = ("last", "as_of", "since", "until", "mode", "slot")
_TWO_WINDOWS = ("since", "until", "other_since", "other_until", "mode")
_GROUPS = ("where", "by", "top", "groups", "limit", "order", "least_rows", "width")


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a function.

    subjects: its first parameters.
    needed: whether the subject is required.
    of_measure: whether the function is about a measure; otherwise about the key.
    accepts_any: whether any value can be a subject, so that positional arguments fill the subjects first.
    two_windows: whether it compares two windows.
    in_slots: whether it is about the slots of the window; such a function has no parameter `every`.
    has_groups: whether it takes a condition and groups, as those about measures do.
    own: further named parameters.
    """

    subjects: tuple[str, ...]
    needed: bool
    of_measure: bool
    accepts_any: bool = False
    two_windows: bool = False
    in_slots: bool = False
    has_groups: bool = False
    own: tuple[str, ...] = ()

    @property
    def modes(self) -> Sequence[str]:
        """The valid modes."""
        return MODES if self.of_measure else KEY_MODES

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of all parameters."""
        own = () if self.of_measure else ("key", *self.own)
        groups = _GROUPS if self.selects else ()
        window = _TWO_WINDOWS if self.two_windows else _SLOTS if self.in_slots else _WINDOW
        return (*self.subjects, *(("measure",) if self.of_measure else ()), *window, *own, *groups)

    @property
    def selects(self) -> bool:
        """Whether it takes a condition and groups."""
        return self.of_measure or self.has_groups


SIGNATURES = {
    "quantile": Signature(("phi",), needed=True, of_measure=True),
    "rank": Signature(("x",), needed=True, of_measure=True),
    "cdf": Signature(("x",), needed=False, of_measure=True),
    "histogram": Signature(("bins",), needed=False, of_measure=True),
    "largest": Signature(("k",), needed=False, of_measure=True),
    "smallest": Signature(("k",), needed=False, of_measure=True),
    "summary": Signature((), needed=False, of_measure=True),
    "frequency": Signature(("value",), needed=True, of_measure=False, accepts_any=True, has_groups=True),
    "heavy_hitters": Signature(("phi",), needed=True, of_measure=False, has_groups=True),
    "hierarchy": Signature(("phi",), needed=True, of_measure=False, own=("separator",)),
    "top": Signature(("k",), needed=False, of_measure=False, has_groups=True),
    "key_range": Signature(("low", "high"), needed=False, of_measure=False, accepts_any=True),
    "self_join": Signature((), needed=False, of_measure=False, has_groups=True),
    "distinct": Signature((), needed=False, of_measure=False, has_groups=True),
    "new_keys": Signature((), needed=False, of_measure=False),
    "overlap": Signature((), needed=False, of_measure=False, two_windows=True),
    "persistent": Signature(("alpha",), needed=True, of_measure=False, in_slots=True, own=("most",)),
    "persistence": Signature(("value",), needed=True, of_measure=False, accepts_any=True, in_slots=True),
}


def resolve_arguments(
    name: str, measures: Sequence[str], args: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The arguments by parameter name, without those that are NULL; None if a required subject is NULL.

    measures: the names that a positional argument may have to be the parameter `measure`.
    args: positional arguments.
    named: named arguments.

    A number for `last` stays a number. `since` and `until` are returned as `between`; two windows as `a` and
    `b`. Raises InputError for an unknown parameter, one that is given twice, and a missing required subject.
    """
    signature = SIGNATURES[name]
    needed = signature.subjects[0] if signature.needed else None
    arguments = {
        parameter: value for parameter, value in named.items() if value is not None or parameter == needed
    }
    unknown = [parameter for parameter in named if parameter not in signature.parameters]
    if unknown:
        raise InputError(
            f"{name} has no parameter {shortened(unknown[0])}. It has: {', '.join(signature.parameters)}."
        )
    for value in args:
        parameter = _parameter_of(name, signature, measures, value, arguments)
        if parameter:
            arguments[parameter] = value
    if needed and needed not in arguments:
        raise InputError(f"{name} needs {needed}, such as {_EXAMPLES[name]}.")
    if needed and arguments[needed] is None:
        return None
    given = {parameter: value for parameter, value in arguments.items() if value is not None}
    given |= {name: parse_columns(given[name]) for name in ("by", "key") if isinstance(given.get(name), str)}
    given |= {name: _to_int_if_whole(given[name]) for name in _WHOLE if name in given}
    if signature.two_windows:
        ends = [_to_int_if_whole(given.pop(end, None)) for end in _TWO_WINDOWS[:4]]
        windows = {"a": (ends[0], ends[1]), "b": (ends[2], ends[3])}
        return given | {name: None if window == (None, None) else window for name, window in windows.items()}
    return _with_window(given)


# Whole numbers, or text of a duration.
_WHOLE = ("top", "limit", "least_rows", "every", "width", "slot", "most")
_EXAMPLES = {
    "quantile": "0.99",
    "rank": "60",
    "frequency": "a key",
    "heavy_hitters": "0.01",
    "hierarchy": "0.01",
    "persistent": "0.8",
    "persistence": "a key",
}


def _parameter_of(
    name: str, signature: Signature, measures: Sequence[str], value: Any, arguments: Mapping[str, Any]
) -> str | None:
    """The parameter that a positional value is for; None for a NULL that means not given."""
    unset_subject = next((subject for subject in signature.subjects if subject not in arguments), None)
    if unset_subject and (signature.accepts_any or (value is None and signature.needed)):
        return unset_subject
    if value is None:
        return None
    parameter = _recognized_parameter(signature, measures, value)
    if unset_subject and (parameter is None or (parameter == "last" and isinstance(value, (int, Decimal)))):
        return unset_subject
    if parameter is None or parameter not in signature.parameters:
        kinds = ["a measure"] * signature.of_measure + ["a mode"]
        kinds += [] if signature.two_windows else ["a span such as '7d'"]
        known = ", ".join([*(measures if signature.of_measure else ()), *signature.modes])
        raise InputError(f"{name}: {shortened(value)} is not {', '.join(kinds)}. There are: {known}.")
    if parameter in arguments:
        raise InputError(
            f"{name}: {parameter} is given twice, as {shortened(arguments[parameter])} and as "
            f"{shortened(value)}."
        )
    return parameter


def is_subject(name: str, measures: Sequence[str], value: Any, *, is_null: bool) -> bool:
    """Whether a positional argument may be for the first parameter.

    value: None if it is not known yet.
    is_null: whether it is NULL, which is for no parameter.
    """
    parameter = _recognized_parameter(SIGNATURES[name], measures, value)
    return not is_null and (parameter is None or (parameter == "last" and isinstance(value, (int, Decimal))))


def _recognized_parameter(signature: Signature, measures: Sequence[str], value: Any) -> str | None:
    """The parameter that a value can be recognized as: measure, mode, last or where; None for others."""
    if isinstance(value, str):
        if signature.of_measure and value in measures:
            return "measure"
        if value in signature.modes:
            return "mode"
        with suppress(InputError):
            parse_duration(value)
            return "last"
        return None
    if isinstance(value, Mapping):
        return "where" if signature.selects else None
    number = isinstance(value, (int, Decimal)) and not isinstance(value, bool)
    return "last" if number or isinstance(value, timedelta) else None


def _with_window(given: dict[str, Any]) -> dict[str, Any]:
    ends = [given.pop(end, None) for end in ("since", "until")]
    if any(end is not None for end in ends):
        given["between"] = tuple(_to_int_if_whole(end) for end in ends)
    return given | {name: _to_int_if_whole(given[name]) for name in ("last", "as_of") if name in given}


def _to_int_if_whole(value: Any) -> Any:
    """A whole number as an int (steps, in a warehouse without a time column); other values unchanged."""
    if isinstance(value, str) and is_whole(value.strip()):
        return int(value)
    return int(value) if isinstance(value, Decimal) and value == int(value) else value
