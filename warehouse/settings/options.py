"""The warehouse's options: properties of the `events` table, fixed at creation, read from there alone.

The measures' types are the columns' types of `events`, in the same snapshot. A warehouse made
without a schema has no columns yet: its first batch brings them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from deltalake import DeltaTable

from tidemark.warehouse.columns.column_types import is_time_type, time_type_names
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.measures import Measure
from tidemark.warehouse.columns.schema import column_types
from tidemark.warehouse.columns.ticks import parse_duration, parse_grace
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.store import EVENTS, Store
from tidemark.warehouse.errors import EmptyWindow, InputError, NotAWarehouse, OptionsMismatch
from tidemark.warehouse.projections.key_counts import KeyCounts
from tidemark.warehouse.projections.sorted_values import SortedValues
from tidemark.warehouse.runs.projection import Projection
from tidemark.warehouse.settings import features, option_checks
from tidemark.warehouse.settings.option_checks import DEFAULT_KEY_DELTA, DEFAULT_KEY_EPS, SYSTEM_COLUMNS
from tidemark.warehouse.sizes import DEFAULT, Tuning

FORMAT = 1
_PREFIX = "tidemark."

DEFAULT_TICK = "1 day"
DEFAULT_GRACE = "7 days"

# The property of each option: its name with the prefix, and where the stored form has a unit, that.
_PROPERTIES = {name: name for name in option_checks.CHECKS} | {"tick": "tick_us", "grace": "grace_us"}
# Warehouses of before there were sketches of keys have these.
_UNTOLD = {"key_eps": repr(DEFAULT_KEY_EPS), "key_delta": repr(DEFAULT_KEY_DELTA)}


@dataclass(frozen=True, slots=True)
class Options:
    """What a warehouse was created with.

    `columns` maps the user's columns to Delta's type names (empty until the first batch of a
    warehouse made without a schema); `tick_us` is None where there is no time column. `tuning` is not stored:
    it is that of the store that the options were read from.
    """

    measure_names: tuple[str, ...]
    key: str | None
    time: str | None
    tick_us: int | None
    eps: float
    kappa: int
    grace_us: int
    columns: tuple[tuple[str, str], ...] = ()
    key_eps: float = DEFAULT_KEY_EPS
    key_delta: float = DEFAULT_KEY_DELTA
    tuning: Tuning = field(default=DEFAULT, compare=False)

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The measures with their types; empty while the columns are not known."""
        types = dict(self.columns)
        return tuple(Measure(name, types[name]) for name in self.measure_names) if types else ()

    @property
    def key_column(self) -> Key | None:
        """The key with its type; None where there is none, or it is not known yet."""
        types = dict(self.columns)
        return Key(self.key, types[self.key]) if self.key and types else None

    @property
    def projections(self) -> tuple[Projection[Any], ...]:
        """What history stores sorted, in the order of loading: the measures, then the key."""
        key = self.key_column
        values = (SortedValues(measure, self.tuning) for measure in self.measures)
        return (*values, *([KeyCounts(key, self.tuning)] if key else []))

    @property
    def time_column(self) -> Measure | None:
        """The time column with its type; None where there is none, or it is not known yet."""
        types = dict(self.columns)
        return Measure(self.time, types[self.time]) if self.time and types else None

    def measure(self, name: str | None = None) -> Measure:
        """The measure of that name; without a name the first one."""
        if name is not None and name not in self.measure_names:
            raise InputError(f"no measure {name!r} here. Expected one of: {', '.join(self.measure_names)}.")
        if not self.columns:
            raise EmptyWindow("the warehouse has no rows yet: its first batch will fix the columns' types.")
        wanted = name or self.measure_names[0]
        return next(measure for measure in self.measures if measure.name == wanted)

    def properties(self) -> dict[str, str]:
        """The table properties that hold the options."""
        values = {
            "format": str(FORMAT),
            "measures": json.dumps(list(self.measure_names)),
            "key": json.dumps(self.key),
            "time": json.dumps(self.time),
            "tick_us": json.dumps(self.tick_us),
            "eps": repr(self.eps),
            "kappa": str(self.kappa),
            "grace_us": str(self.grace_us),
            "key_eps": repr(self.key_eps),
            "key_delta": repr(self.key_delta),
        }
        return {_PREFIX + name: value for name, value in values.items()}

    @classmethod
    def from_properties(cls, uri: str, properties: Mapping[str, Any], columns: Mapping[str, str]) -> Options:
        """The options that an `events` table holds."""
        found = {
            name.removeprefix(_PREFIX): value
            for name, value in properties.items()
            if name.startswith(_PREFIX)
        }
        if "format" not in found:
            raise NotAWarehouse(
                f"{uri} is not a tidemark warehouse: its events table has no tidemark properties."
            )
        if found["format"] != str(FORMAT):
            raise NotAWarehouse(
                f"{uri} is of format {found['format']}, this version reads {FORMAT}. Use a newer tidemark."
            )

        needed = _property(uri, found, "features", features.check) if "features" in found else {}
        missing = features.unknown(needed)
        if missing is not None:
            raise NotAWarehouse(
                f"{uri} has {missing}. This version does not know it: use a newer tidemark. "
                "Nothing was changed."
            )
        found = {**_UNTOLD, **found}
        read = {
            name: _property(uri, found, _PROPERTIES[name], check)
            for name, check in option_checks.CHECKS.items()
        }
        if (read["time"] is None) != (read["tick"] is None):
            raise _spoilt(
                uri, "tick_us", found["tick_us"], f"the time column is {read['time']!r}: both or none"
            )
        return cls(
            measure_names=tuple(read["measures"]),
            key=read["key"],
            time=read["time"],
            tick_us=read["tick"],
            eps=float(read["eps"]),
            kappa=read["kappa"],
            grace_us=read["grace"],
            key_eps=float(read["key_eps"]),
            key_delta=float(read["key_delta"]),
            columns=tuple((name, kind) for name, kind in columns.items() if name not in SYSTEM_COLUMNS),
        )

    def check_stored(self, uri: str) -> None:
        """The columns that the properties name are in `events`, where it has columns, of types that fit."""
        if not self.columns:
            return
        for name, column in (("measures", self.measure_names), ("key", self.key), ("time", self.time)):
            try:
                self._check_role(name, dict(self.columns))
            except InputError as error:
                raise _spoilt(uri, name, json.dumps(column), str(error)) from error

    def check_columns(self, columns: Mapping[str, str]) -> None:
        """Every named column is there and of a type that its role can have."""
        option_checks.check_names(columns)
        for role in ("measures", "key", "time"):
            self._check_role(role, columns)

    def _check_role(self, role: str, columns: Mapping[str, str]) -> None:
        """The columns of the role, as the option is called, are there and of its types."""
        names = self.measure_names if role == "measures" else (self.key if role == "key" else self.time,)
        for name in names:
            if name is None:
                continue
            if name not in columns:
                raise InputError(
                    f"the {role.removesuffix('s')} column {name!r} is missing. "
                    f"There are: {', '.join(columns)}."
                )
            if role == "measures":
                Measure(name, columns[name])
            elif role == "key":
                Key(name, columns[name])
            elif not is_time_type(columns[name]):
                raise InputError(
                    f"the time column {name!r} is {columns[name]}. Expected {time_type_names()}."
                )

    def check_same(self, given: Mapping[str, Any]) -> None:
        """The options given (those not None) are the stored ones."""
        stored = {
            "measures": list(self.measure_names),
            "key": self.key,
            "time": self.time,
            "tick": self.tick_us,
            "eps": self.eps,
            "kappa": self.kappa,
            "grace": self.grace_us,
            "key_eps": self.key_eps,
            "key_delta": self.key_delta,
        }
        for name, value in given.items():
            if value is not None and value != stored[name]:
                raise OptionsMismatch(
                    f"{name} was given as {value!r}, the warehouse was created with {stored[name]!r}. "
                    "Options are fixed at creation: leave it out, or create another warehouse."
                )


def parse_options(  # noqa: PLR0913  every option
    *,
    measures: Any,
    key: Any,
    time: Any,
    tick: Any,
    eps: Any,
    kappa: Any,
    grace: Any,
    key_eps: Any = None,
    key_delta: Any = None,
) -> dict[str, Any]:
    """The caller's options, checked one by one; None stays None (not given)."""
    if isinstance(measures, str):
        measures = [measures]
    if measures is not None:
        measures = list(measures) if isinstance(measures, Iterable) else [measures]
    given = {
        "measures": measures,
        "key": key,
        "time": time,
        "tick": None if tick is None else parse_duration(tick),
        "eps": eps,
        "kappa": kappa,
        "grace": None if grace is None else parse_grace(grace),
        "key_eps": key_eps,
        "key_delta": key_delta,
    }
    for name, value in given.items():
        if value is not None:
            option_checks.CHECKS[name](value)
    shares = ("eps", "key_eps", "key_delta")
    return given | {name: float(given[name]) for name in shares if given[name] is not None}


def read_options(store: Store, events: DeltaTable | None = None) -> Options:
    """The options of the warehouse."""
    table = events or tables.open_table(store, EVENTS)
    columns = column_types(table.schema().fields)
    options = Options.from_properties(store.uri, table.metadata().configuration, columns)
    options.check_stored(store.uri)
    return replace(options, tuning=store.tuning)


def _property(uri: str, found: Mapping[str, Any], name: str, check: Callable[[Any], None]) -> Any:
    """The value of a property, which is JSON that the check takes; NotAWarehouse otherwise."""
    try:
        value = json.loads(found[name], parse_constant=_no_number, object_pairs_hook=_once)
        check(value)
        return value
    except (KeyError, TypeError, ValueError, RecursionError) as error:  # InputError is a ValueError
        told = "it is missing" if isinstance(error, KeyError) else str(error)
        raise _spoilt(uri, name, found.get(name), told) from error


def _spoilt(uri: str, name: str, value: Any, told: str) -> NotAWarehouse:
    return NotAWarehouse(
        f"{uri} is a damaged warehouse: the property {_PREFIX}{name} of its events table is "
        f"{option_checks.shortened(value)}: {told.rstrip('.')}. "
        "Set it to what the warehouse was created with."
    )


def _no_number(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"a name is there twice among {[name for name, _ in pairs]}")
    return found
