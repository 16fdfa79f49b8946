"""The warehouse's options: properties of the `events` table, fixed at creation, read from there alone.

The measures' types are the columns' types of `events`, in the same snapshot. A warehouse made
without a schema has no columns yet: its first batch brings them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from warehouse.errors import EmptyWindow, InputError, NotAWarehouse, OptionsMismatch
from warehouse.keys import Key
from warehouse.keysummaries import KeyPromise
from warehouse.measures import Measure
from warehouse.ticks import parse_duration, parse_grace

FORMAT = 1
SYSTEM_COLUMNS = {"_source": "string", "_batch": "long", "_tick": "long"}
_PREFIX = "tidemark."
_UNFIT = set(" ,;{}()\n\t=")  # what a table without column mapping refuses in a column's name

DEFAULT_TICK = "1 day"
DEFAULT_EPS = 0.001
DEFAULT_KAPPA = 10
DEFAULT_GRACE = "7 days"
DEFAULT_KEY_EPS = 0.01
DEFAULT_KEY_DELTA = 0.01


@dataclass(frozen=True, slots=True)
class Options:
    """What a warehouse was created with.

    `columns` maps the user's columns to Delta's type names (empty until the first batch of a
    warehouse made without a schema); `tick_us` is None where there is no time column.
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
    def projections(self) -> tuple[Measure | Key, ...]:
        """What history stores sorted, in the order of loading: the measures, then the key."""
        key = self.key_column
        return (*self.measures, *([key] if key else []))

    @property
    def time_column(self) -> Measure | None:
        """The time column with its type; None where there is none, or it is not known yet."""
        types = dict(self.columns)
        return Measure(self.time, types[self.time]) if self.time and types else None

    @property
    def key_promise(self) -> KeyPromise:
        """What live counts of keys promise."""
        return KeyPromise(self.key_eps, self.key_delta)

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

        # Warehouses of before there were sketches of keys have these.
        found = {"key_eps": repr(DEFAULT_KEY_EPS), "key_delta": repr(DEFAULT_KEY_DELTA), **found}

        def read(name: str) -> Any:
            try:
                return json.loads(found[name])
            except (KeyError, ValueError) as error:
                raise NotAWarehouse(
                    f"{uri} is a damaged warehouse: the property {_PREFIX}{name} of its events table is "
                    f"{found.get(name)!r}. Set it to what the warehouse was created with."
                ) from error

        return cls(
            measure_names=tuple(read("measures")),
            key=read("key"),
            time=read("time"),
            tick_us=read("tick_us"),
            eps=float(read("eps")),
            kappa=int(read("kappa")),
            grace_us=int(read("grace_us")),
            key_eps=float(read("key_eps")),
            key_delta=float(read("key_delta")),
            columns=tuple((name, kind) for name, kind in columns.items() if name not in SYSTEM_COLUMNS),
        )

    def check_columns(self, columns: Mapping[str, str]) -> None:
        """Every named column is there and of a type that its role can have."""
        reserved = [name for name in columns if name.lower() in SYSTEM_COLUMNS]
        if reserved:
            raise InputError(f"the columns {reserved} are tidemark's own. Rename them in the input.")
        unfit = [name for name in columns if _UNFIT & set(name)]
        if unfit:
            raise InputError(
                f"the columns {unfit} cannot be stored: Delta takes no space and no ,;{{}}()= in a name. "
                "Rename them in the input."
            )
        for role, names in (("measure", self.measure_names), ("key", (self.key,)), ("time", (self.time,))):
            for name in names:
                if name is not None and name not in columns:
                    raise InputError(
                        f"the {role} column {name!r} is missing. The input has: {', '.join(columns)}."
                    )
        for name in self.measure_names:
            Measure(name, columns[name])
        if self.key is not None:
            Key(self.key, columns[self.key])
        if self.time is not None and columns[self.time] not in {"timestamp", "date"}:
            raise InputError(
                f"the time column {self.time!r} is {columns[self.time]}. Expected timestamp or date."
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


def parse_given(  # noqa: PLR0913  every option
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
        if not measures or not all(isinstance(name, str) and name for name in measures):
            raise InputError(f"measures must be one or more column names, got {measures!r}.")
        if len(set(measures)) < len(measures):
            raise InputError(f"a measure is named twice: {measures!r}.")
    for role, name in (("key", key), ("time", time)):
        if name is not None and (not isinstance(name, str) or not name):
            raise InputError(f"{role} must be a column's name, got {name!r}.")
    shares = {"eps": (eps, DEFAULT_EPS), "key_eps": (key_eps, DEFAULT_KEY_EPS)}
    for name, (share, default) in {**shares, "key_delta": (key_delta, DEFAULT_KEY_DELTA)}.items():
        if share is not None and (
            isinstance(share, bool)
            or not isinstance(share, (int, float))
            or not math.isfinite(share)
            or not 0 < share < 0.5
        ):
            raise InputError(f"{name} must lie in (0, 0.5), got {share!r}. {default} is the default.")
    if kappa is not None and (isinstance(kappa, bool) or not isinstance(kappa, int) or kappa < 2):
        raise InputError(f"kappa must be a whole number of at least 2, got {kappa!r}. 10 is the default.")
    return {
        "measures": measures,
        "key": key,
        "time": time,
        "tick": None if tick is None else parse_duration(tick),
        "eps": None if eps is None else float(eps),
        "kappa": kappa,
        "grace": None if grace is None else parse_grace(grace),
        "key_eps": None if key_eps is None else float(key_eps),
        "key_delta": None if key_delta is None else float(key_delta),
    }
