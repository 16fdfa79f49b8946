"""The options of a warehouse. They are fixed at creation and stored as properties of the table `events`.

The types of the measures are the types of the columns of `events` in the same version of the table. A
warehouse that was created without a schema has no columns until its first batch adds them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from deltalake import DeltaTable

from tidemark.warehouse.columns.column_types import is_time_type, time_type_names
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.schema import column_types
from tidemark.warehouse.columns.ticks import parse_duration, parse_grace
from tidemark.warehouse.columns.value_encoding import Measure
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

# The property of each option, without the prefix. Durations are stored in microseconds.
_PROPERTIES = {name: name for name in option_checks.CHECKS} | {"tick": "tick_us", "grace": "grace_us"}
# The properties that warehouses lack if they were created before live counts of keys existed.
_LATER_PROPERTIES = {"key_eps": repr(DEFAULT_KEY_EPS), "key_delta": repr(DEFAULT_KEY_DELTA)}


@dataclass(frozen=True, slots=True)
class Options:
    """The options that a warehouse was created with, and its columns.

    measure_names       the measures, at least one
    key, time           the names of the key column and of the time column; None if there is none
    tick_us, grace_us   durations in microseconds; `tick_us` is None if there is no time column
    eps, kappa          the rank error, and the most runs of a level
    key_eps, key_delta  the error of live counts of keys, and the probability of a larger error
    columns             pairs of the user's columns and Delta's names of their types; empty until the first
                        batch if the warehouse was created without a schema
    tuning              the tuning of the store that the options were read from; it is not stored
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
        """The measures with their types; empty until the columns are known."""
        types = dict(self.columns)
        return tuple(Measure(name, types[name]) for name in self.measure_names) if types else ()

    @property
    def key_column(self) -> Key | None:
        """The key with its type; None if there is no key, or until the columns are known."""
        types = dict(self.columns)
        return Key(self.key, types[self.key]) if self.key and types else None

    @property
    def projections(self) -> tuple[Projection[Any], ...]:
        """The projections of history in the order in which they are loaded: the measures, then the key."""
        key = self.key_column
        values = (SortedValues(measure, self.tuning) for measure in self.measures)
        return (*values, *([KeyCounts(key, self.tuning)] if key else []))

    @property
    def time_column(self) -> Measure | None:
        """The time column with its type; None if there is none, or until the columns are known."""
        types = dict(self.columns)
        return Measure(self.time, types[self.time]) if self.time and types else None

    def measure(self, name: str | None = None) -> Measure:
        """The measure with this name; the first one if None.

        Raises InputError for an unknown name, EmptyWindow until the columns are known.
        """
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
        """The options from the properties of `events`, and its columns, name to Delta's type.

        Raises NotAWarehouse for properties that are missing, damaged, or of a newer version. `uri` is for
        the error texts.
        """
        stored = {
            name.removeprefix(_PREFIX): value
            for name, value in properties.items()
            if name.startswith(_PREFIX)
        }
        if "format" not in stored:
            raise NotAWarehouse(
                f"{uri} is not a tidemark warehouse: its events table has no tidemark properties."
            )
        if stored["format"] != str(FORMAT):
            raise NotAWarehouse(
                f"{uri} is of format {stored['format']}, this version reads {FORMAT}. Use a newer tidemark."
            )

        needed = _read_property(uri, stored, "features", features.check) if "features" in stored else {}
        unknown = features.describe_unknown(needed)
        if unknown is not None:
            raise NotAWarehouse(
                f"{uri} has {unknown}. This version does not know it: use a newer tidemark. "
                "Nothing was changed."
            )
        stored = {**_LATER_PROPERTIES, **stored}
        values = {
            name: _read_property(uri, stored, _PROPERTIES[name], check)
            for name, check in option_checks.CHECKS.items()
        }
        if (values["time"] is None) != (values["tick"] is None):
            reason = f"the time column is {values['time']!r}, expected both or neither"
            raise _damaged_property(uri, "tick_us", stored["tick_us"], reason)
        return cls(
            measure_names=tuple(values["measures"]),
            key=values["key"],
            time=values["time"],
            tick_us=values["tick"],
            eps=float(values["eps"]),
            kappa=values["kappa"],
            grace_us=values["grace"],
            key_eps=float(values["key_eps"]),
            key_delta=float(values["key_delta"]),
            columns=tuple((name, kind) for name, kind in columns.items() if name not in SYSTEM_COLUMNS),
        )

    def check_stored(self, uri: str) -> None:
        """NotAWarehouse if a named column is missing in `events` or has a wrong type.

        Does nothing until the columns are known.
        """
        if not self.columns:
            return
        for name, column in (("measures", self.measure_names), ("key", self.key), ("time", self.time)):
            try:
                self._check_role(name, dict(self.columns))
            except InputError as error:
                raise _damaged_property(uri, name, json.dumps(column), str(error)) from error

    def check_columns(self, columns: Mapping[str, str]) -> None:
        """InputError if a measure, the key or the time is missing in the columns or has a wrong type."""
        option_checks.check_names(columns)
        for role in ("measures", "key", "time"):
            self._check_role(role, columns)

    def _check_role(self, role: str, columns: Mapping[str, str]) -> None:
        """InputError if a column of the role is missing or has a wrong type; `role` is an option's name."""
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
        """OptionsMismatch if a given option differs from the stored one; None means not given."""
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
    """The caller's options in stored form, by name; None means not given and stays None.

    `measures` is a name or an iterable of names; `tick` and `grace` are durations as text. Raises InputError
    for an invalid value.
    """
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
    fractions = ("eps", "key_eps", "key_delta")
    return given | {name: float(given[name]) for name in fractions if given[name] is not None}


def read_options(store: Store, events: DeltaTable | None = None) -> Options:
    """The options of the warehouse; `events` is its opened table, None opens the newest version."""
    table = events or tables.open_table(store, EVENTS)
    columns = column_types(table.schema().fields)
    options = Options.from_properties(store.uri, table.metadata().configuration, columns)
    options.check_stored(store.uri)
    return replace(options, tuning=store.tuning)


def _read_property(uri: str, stored: Mapping[str, Any], name: str, check: Callable[[Any], None]) -> Any:
    """The value of a property; NotAWarehouse unless it is JSON that the check accepts."""
    try:
        value = json.loads(stored[name], parse_constant=_refuse_constant, object_pairs_hook=_object)
        check(value)
        return value
    except (KeyError, TypeError, ValueError, RecursionError) as error:  # InputError is a ValueError
        reason = "it is missing" if isinstance(error, KeyError) else str(error)
        raise _damaged_property(uri, name, stored.get(name), reason) from error


def _damaged_property(uri: str, name: str, value: Any, reason: str) -> NotAWarehouse:
    return NotAWarehouse(
        f"{uri} is a damaged warehouse: the property {_PREFIX}{name} of its events table is "
        f"{option_checks.shortened(value)}: {reason.rstrip('.')}. "
        "Set it to what the warehouse was created with."
    )


def _refuse_constant(constant: str) -> None:
    """ValueError for NaN and infinities, which Python's parser accepts and JSON does not have."""
    raise ValueError(f"{constant} is not a JSON number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; ValueError if it has a name twice."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError(f"a name occurs more than once in {[name for name, _ in pairs]}")
    return members
