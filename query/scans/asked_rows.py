"""What a scan asks of the rows of `events`: columns and conditions, as SQL of DuckDB.

It asks for the visible rows of the windows that are selected, in these columns; no column of a warehouse can
have their names, because Delta refuses spaces:

    is live          1 for rows of live batches, 0 for rows of history
    stored value     the measure, if there is one, as it is stored; NULL where it is NULL
    group 1 ...      the stored keys of the columns of the group, which are not NULL; text as bytes
    key 1 ...        those of the columns of the key that is counted; NULL where they are NULL
    tick of row      the tick, if it is asked for

A condition is asked only of rows that are visible, inside and equal to what `equal` says, because it may fail
on others. Conditions that cannot fail are told to DuckDB as they are: then statistics spare row groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from tidemark.query.reading.sql_text import named_rows, parquet_rows, quoted
from tidemark.query.scans.encoded_rows import names_of_values
from tidemark.query.scans.expressions import Expression
from tidemark.query.scans.picked_rows import FILE_ROW
from tidemark.query.scans.stored_sql import among_sql, batches_sql, measure_sql, stored_sql
from tidemark.query.scans.window_buckets import BUCKET, PART, Buckets
from tidemark.warehouse.columns.column_types import find_column_type, key_type_names
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.schema import arrow_fields
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import InputError, shortened
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.settings.allowed_columns import SYSTEM_COLUMNS
from tidemark.warehouse.snapshots.system_tables import AnyContents

LIVE, NULL, VALUE, TICK = "is live", "is null", "stored value", "tick of row"
ROWS = "rows of events"  # the name of the rows that DuckDB does not read by itself
WINDOWS = "buckets of windows"  # the name of the windows of each bucket, where they overlap
BATCH_COLUMNS = ("_source", "_batch")


def group_name(number: int) -> str:
    """The name of a column of the group; they are counted from 1."""
    return f"group {number}"


def key_name(number: int) -> str:
    """The name of a column of the key that is counted; they are counted from 1."""
    return f"key {number}"


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A range of event times that ends inside ticks, in microseconds since 1970.

    time: the time column. since: inclusive, until: exclusive; None for a side that ticks bound.
    """

    time: Measure
    since: int | None
    until: int | None

    @property
    def sql(self) -> str:
        """SQL that is true of the rows inside."""
        unit = self.time.column_type.unit_us or 1
        moment = f"{stored_sql(self.time.column_type, quoted(self.time.name))}::BIGINT * {unit}"
        ends = [("since", ">="), ("until", "<")]
        given = [(getattr(self, name), sign) for name, sign in ends if getattr(self, name) is not None]
        return " AND ".join(f"{moment} {sign} {end}" for end, sign in given)


def key_of(contents: AnyContents, name: str, computed: Mapping[str, Expression] | None = None) -> Key:
    """A column by which rows are grouped or selected; InputError if there is none, or of another type.

    computed: expressions by their text; `name` may be the text of one of them.
    """
    if computed and name in computed:
        return Key(name, str(computed[name].type))
    columns = {column: kind for column, kind in contents.columns.items() if column not in SYSTEM_COLUMNS}
    if name not in columns:
        raise InputError(f"there is no column {shortened(name)}. Expected one of: {', '.join(columns)}.")
    kind = find_column_type(columns[name])
    if kind is None or not kind.is_key:
        raise InputError(
            f"the column {shortened(name)} is of type {columns[name]}, which cannot group or select rows. "
            f"Expected one of: {key_type_names()}."
        )
    return Key(name, columns[name])


@dataclass(frozen=True, slots=True)
class Place:
    """How rows of files that DuckDB reads are selected, in one store.

    is_cut: whether the windows cut them. batches: the visible batches; empty if all are visible.
    rows: a condition of the rows that are read; empty if all are.
    """

    store: Store
    is_live: bool
    is_cut: bool
    batches: tuple[BatchRange, ...]
    rows: str


@dataclass
class AskedRows:
    """The rows that one scan asks for.

    contents    the visible batches
    windows     the ticks of the rows: one window, or several as `every` makes them
    measure     the column that is counted and ranked; None for rows that are counted by a key
    by          the columns of the group; a row with NULL in one of them is left out
    equal       the allowed values of columns
    expression  the condition, or None
    computed    by the name of a measure or a key that is no column: the expression that computes it
    key         the columns of the key that is counted; rows with NULL in them stay
    times       only rows of these times, or None
    ticks       whether the relation has the tick of each row
    texts       the columns of the group, as SQL, that are text in the relation; `stored` makes bytes of them

    With several windows, the number of a row's bucket (window_buckets.py) is the last column of its group.
    Where windows overlap, `spread` repeats a row for each window of its bucket.
    """

    contents: AnyContents
    windows: Sequence[Window]
    measure: Measure | None
    by: tuple[Key, ...]
    equal: Mapping[Key, Sequence[Any]]
    expression: Expression | None
    computed: Mapping[str, Expression] = field(default_factory=dict)
    key: tuple[Key, ...] = ()
    times: TimeRange | None = None
    ticks: bool = False
    texts: frozenset[str] = field(default=frozenset(), init=False)
    buckets: Buckets | None = field(init=False)
    _wanted: dict[Key, Any] = field(init=False)

    def __post_init__(self) -> None:
        columns = {key: values for key, values in self.equal.items() if key.name not in self.computed}
        self._wanted = {key: names_of_values(key, values) for key, values in columns.items()}
        self.buckets = Buckets.of(self.windows) if len(self.windows) > 1 else None

    @property
    def group_columns(self) -> list[str]:
        """The columns of the group, as SQL."""
        return [quoted(group_name(i + 1)) for i in range(len(self.by) + (self.buckets is not None))]

    @cached_property
    def range(self) -> Window:
        """The ticks from the first window to the last."""
        return Window(self.windows[0].start, self.windows[-1].stop)

    @property
    def _asked(self) -> list[str]:
        """The columns of `events` that are read, without tidemark's own."""
        asked = [*self._measures, *(key.name for key in (*self.by, *self.key, *self.equal)), *self._columns]
        return [name for name in dict.fromkeys(asked) if name not in self.computed]

    def stored(self, rows: str) -> str:
        """SQL of rows of the relation, with text of the group as bytes."""
        if not self.texts:
            return rows
        encoded = ", ".join(f"encode({column}) AS {column}" for column in sorted(self.texts))
        return f"(SELECT * REPLACE ({encoded}) FROM {rows})"

    def spread(self, rows: str) -> str:
        """SQL of rows with the last column of the group, with each window of their bucket in its place."""
        if self.buckets is None or self.buckets.are_windows:
            return rows
        name = self.group_columns[-1]
        return (
            f"(SELECT counted.* REPLACE ({PART} AS {name}) FROM ({rows}) AS counted "
            f"JOIN {quoted(WINDOWS)} ON counted.{name} = {BUCKET})"
        )

    def _read_by_duckdb(self, place: Place, paths: Sequence[str]) -> str:
        """SQL of the selected rows of files."""
        guards = [f"{quoted(key.name)} IS NOT NULL" for key in self._keys]
        if place.is_cut:
            guards.append(f'"_tick" >= {self.range.start} AND "_tick" < {self.range.stop}')
        if place.batches:
            guards.append(batches_sql(place.batches))
        guards += [among_sql(key, quoted(key.name), self.equal[key]) for key in self._wanted]
        guards += self._inside
        columns = [f"{int(place.is_live)}::UTINYINT AS {quoted(LIVE)}"]
        if self.measure is not None:
            columns.append(f"{self._stored(self.measure, guards)} AS {quoted(VALUE)}")
        for number, key in enumerate(self.by, 1):
            name = quoted(group_name(number))
            value = quoted(key.name) if name in self.texts else self._stored(key, guards)
            columns.append(f"{value} AS {name}")
        columns += [
            f"{self._stored(key, guards)} AS {quoted(key_name(i))}" for i, key in enumerate(self.key, 1)
        ]
        if self.buckets is not None:
            number = self.buckets.of_ticks('"_tick"')
            columns.append(f"{number} AS {quoted(group_name(len(self.by) + 1))}")
        if self.ticks:
            columns.append(f'"_tick" AS {quoted(TICK)}')
        names = place.store.column_names
        asked = [*self._asked, "_tick", *BATCH_COLUMNS]
        if not place.rows:
            return self._selected(columns, named_rows(parquet_rows(paths), names, asked), guards)
        rows = named_rows(parquet_rows(paths, f"{FILE_ROW} = true"), names, [*asked, FILE_ROW])
        return self._selected(columns, rows, [place.rows, *guards])

    @property
    def _registered(self) -> str:
        columns = [quoted(LIVE)]
        if self.measure is not None:
            value = f"CASE WHEN {quoted(NULL)} = 0 THEN {quoted(VALUE)} END"
            if self.measure.name in self.computed:
                value = self._stored(self.measure, self._inside)
            columns.append(f"{value} AS {quoted(VALUE)}")
        for number, key in enumerate(self.by, 1):
            name = quoted(group_name(number))
            is_computed = key.name in self.computed
            columns.append(f"{self._stored(key, self._inside)} AS {name}" if is_computed else name)
        columns += [quoted(key_name(i + 1)) for i in range(len(self.key))]
        if self.buckets is not None:
            columns.append(quoted(group_name(len(self.by) + 1)))
        columns += [quoted(TICK)] if self.ticks else []
        return self._selected(columns, quoted(ROWS), self._inside)

    def _selected(self, columns: Sequence[str], rows: str, guards: Sequence[str]) -> str:
        """SQL of the selected rows. A group that is computed has no row whose value is NULL."""
        selected = f"SELECT {', '.join(columns)} FROM {rows}{self._condition(guards)}"
        filled = [
            f"{quoted(group_name(i))} IS NOT NULL"
            for i, key in enumerate(self.by, 1)
            if key.name in self.computed
        ]
        return f"(FROM ({selected}) WHERE {' AND '.join(filled)})" if filled else selected

    def _condition(self, guards: Sequence[str]) -> str:
        """WHERE: a condition that may fail is asked of the rows alone for which the guards are true."""
        conditions = list(guards)
        if self.expression is not None:
            conditions.append(_guarded(self.expression, guards, "false"))
        for key, values in self.equal.items():
            if key.name in self.computed:
                own = _guarded(self.computed[key.name], guards, "NULL")
                conditions.append(among_sql(key, own, values))
        return f" WHERE {' AND '.join(conditions)}" if conditions else ""

    def _stored(self, column: Measure | Key, guards: Sequence[str]) -> str:
        """SQL of the stored values of a column, or of computed values, where the row is selected."""
        as_sql = measure_sql if column is self.measure else stored_sql
        if column.name not in self.computed:
            return as_sql(column.column_type, quoted(column.name))
        expression = self.computed[column.name]
        conditions = [*guards, *([] if self.expression is None else [f"({self.expression.sql})"])]
        return as_sql(column.column_type, _guarded(expression, conditions, "NULL"))

    @property
    def _inside(self) -> list[str]:
        """SQL that is true of rows of the asked times; empty if ticks tell them."""
        return [] if self.times is None else [f"({self.times.sql})"]

    @property
    def _measures(self) -> list[str]:
        """The name of the measure, if there is one."""
        return [] if self.measure is None else [self.measure.name]

    @property
    def _keys(self) -> list[Key]:
        """The columns of the group that are columns of `events`."""
        return [key for key in self.by if key.name not in self.computed]

    @property
    def schema(self) -> pa.Schema:
        """The columns of the batches."""
        keys = [(group_name(i), key) for i, key in enumerate(self.by, 1) if key.name not in self.computed]
        keys += [(key_name(i), key) for i, key in enumerate(self.key, 1)]
        groups = [(name, pa.large_binary() if key.is_text else key.stored_type) for name, key in keys]
        if self.buckets is not None:
            groups.append((group_name(len(self.by) + 1), pa.int64()))
        groups += [(TICK, pa.int64())] if self.ticks else []
        own = [(LIVE, pa.uint8()), *groups]
        if self.measure is not None and self.measure.name not in self.computed:
            own[1:1] = [(NULL, pa.uint8()), (VALUE, self.measure.arrow_type)]
        types = {name: self.contents.columns[name] for name in self._columns}
        return pa.schema([*own, *arrow_fields(types)])

    @property
    def _columns(self) -> tuple[str, ...]:
        """The columns of the expressions, and the time where a tick is cut."""
        expressions = [*([] if self.expression is None else [self.expression]), *self.computed.values()]
        times = [] if self.times is None else [self.times.time.name]
        return tuple(dict.fromkeys([*times, *(name for one in expressions for name in one.columns)]))


def _guarded(expression: Expression, guards: Sequence[str], otherwise: str) -> str:
    """SQL of an expression, which is evaluated where the guards are true, if it may fail elsewhere."""
    if expression.never_fails or not guards:
        return f"({expression.sql})"
    return f"CASE WHEN {' AND '.join(guards)} THEN ({expression.sql}) ELSE {otherwise} END"
