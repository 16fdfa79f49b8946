"""The rows of `events` that a scan looks at, filtered, as a relation of DuckDB.

It has the visible rows of the windows that are selected, in these columns; no column of a warehouse can have
their names, because Delta refuses spaces:

    is live          1 for rows of live batches, 0 for rows of history
    stored value     the measure, if there is one, as it is stored; NULL where it is NULL
    group 1 ...      the stored keys of the columns of the group, which are not NULL; text as bytes
    key 1 ...        those of the columns of the key that is counted; NULL where they are NULL
    tick of row      the tick, if it is asked for

DuckDB reads most files by itself (duckdb_files.py). Files that, by the table's log, lie in the windows or are
visible as a whole get no filter for that. The rows of the others come through warehouse/events/reader.py as
batches, encoded as loads encode them, so a value is the same number in both. Files without rows of the
batches or the windows are not opened.

A condition is asked only of rows that are visible, inside and equal to what `equal` says, because it may fail
on others. Conditions that cannot fail are told to DuckDB as they are: then statistics spare row groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, prod
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.query.reading import spending
from tidemark.query.reading.connections import Progress
from tidemark.query.reading.sql_text import named_rows, parquet_rows, quoted
from tidemark.query.scans.duckdb_files import ScannedColumns
from tidemark.query.scans.encoded_rows import is_wanted, names_of_values, native_column, stored_column
from tidemark.query.scans.expressions import Expression
from tidemark.query.scans.picked_rows import FILE_ROW, PickedRows, RowConditions
from tidemark.query.scans.plain_files import PlainFile, is_plain
from tidemark.query.scans.stored_sql import among_sql, batches_sql, measure_sql, stored_sql
from tidemark.query.scans.window_buckets import BUCKET, PART, Buckets
from tidemark.warehouse.columns.arrow_buffers import arrow_array
from tidemark.warehouse.columns.column_types import Storage, find_column_type, key_type_names
from tidemark.warehouse.columns.keys import Key, encode_keys
from tidemark.warehouse.columns.schema import arrow_fields
from tidemark.warehouse.columns.ticks import ALL_TIME, Window
from tidemark.warehouse.columns.value_encoding import Measure, as_numpy, encode_values, single_array
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.errors import InputError, shortened
from tidemark.warehouse.events.reader import (
    BatchRange,
    EventRowGroups,
    read_event_rows,
    share_with_rows,
)
from tidemark.warehouse.events.visible_files import VisibleFile
from tidemark.warehouse.settings.allowed_columns import SYSTEM_COLUMNS
from tidemark.warehouse.snapshots.site_contents import AnyContents

Located: TypeAlias = tuple[Store, VisibleFile]

LIVE, NULL, VALUE, TICK = "is live", "is null", "stored value", "tick of row"
ROWS = "rows of events"  # the name of the rows that DuckDB does not read by itself
WINDOWS = "buckets of windows"  # the name of the windows of each bucket, where they overlap
_BATCH_COLUMNS = ("_source", "_batch")
BATCH_ROWS = 2**17  # of a batch: DuckDB's threads share the batches of a row group


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


@dataclass
class RowSource:
    """The rows of one scan.

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
    as_text     whether text of the group may stay text in the relation (`texts`): that is grouped faster
    summed      whether sums of each group are asked

    With several windows, the number of a row's bucket (window_buckets.py) is the last column of its group.
    Where windows overlap, `spread` repeats a row for each window of its bucket.

    Once there is a relation:

    paths       the files that DuckDB reads by itself
    has_live    whether a file has live rows
    most_rows   the rows of all files, times the number of windows that a row may be in
    rows_left   how many rows indexes left to be read; None without an index
    share       the share of the other files' rows that was read, from 0 to 1
    texts       the columns of the group, as SQL, that are text in the relation; `stored` makes bytes of them
    most_codes  about how many groups there may be, if their columns are integers: as many as the statistics
                of the files leave room for; else infinite
    spans       of each of these columns the least number and how many there may be from it on; else empty
    key_spans   the same of the columns of the key
    plain       the files, if plain_files.py reads all that is selected of them: their rows, or those of a key
                in a window; else empty
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
    as_text: bool = False
    summed: bool = False
    share: float = 0.0
    buckets: Buckets | None = field(init=False)
    paths: list[str] = field(default_factory=list, init=False)
    has_live: bool = field(default=False, init=False)
    texts: frozenset[str] = field(default=frozenset(), init=False)
    most_rows: float = field(default=0, init=False)
    most_codes: float = field(default=inf, init=False)
    spans: list[tuple[int, int]] = field(default_factory=list, init=False)
    key_spans: list[tuple[int, int]] = field(default_factory=list, init=False)
    plain: list[PlainFile] = field(default_factory=list, init=False)
    rows_left: int | None = field(default=None, init=False)
    _picked: PickedRows = field(init=False)
    _wanted: dict[Key, Any] = field(init=False)

    def __post_init__(self) -> None:
        columns = {key: values for key, values in self.equal.items() if key.name not in self.computed}
        self._wanted = {key: names_of_values(key, values) for key, values in columns.items()}
        self.buckets = Buckets.of(self.windows) if len(self.windows) > 1 else None

    @property
    def group_columns(self) -> list[str]:
        """The columns of the group, as SQL."""
        return [quoted(group_name(i + 1)) for i in range(len(self.by) + (self.buckets is not None))]

    @property
    def located(self) -> list[Located]:
        """The files that may have rows of the windows, by the table's log."""
        return [(store, one) for store, one in self.contents.located_files() if not self._misses(one)]

    def relation(self, progress: Progress | None) -> tuple[str, Iterator[pa.RecordBatch] | None]:
        """SQL of the relation, to be run once, and the rows that it names ROWS, if it does.

        progress: gets the share of the files that were compared with their digests.

        Raises DamagedWarehouse as `Contents.visible_files` does, and for a file that is missing or damaged.
        """
        files = self.located
        self._picked = PickedRows.of(self.contents, self.expression, self._wanted)
        if self._picked:
            left = {one.file.path: self._picked.rows_left(store, one.file) for store, one in files}
            files = [(store, one) for store, one in files if left[one.file.path]]
            self.rows_left = sum(max(0, rows) for rows in left.values())
        by_duckdb, others = self._divided(files, progress)
        repeated = 1 if self.buckets is None else self.buckets.most_windows
        self.most_rows = repeated * sum(one.file.rows if one.file.rows >= 0 else inf for _, one in files)
        self.spans, self.key_spans = self._spans_of(files, self.by), self._spans_of(files, self.key)
        if len(self.spans) == len(self.by) and self.buckets is not None:
            least, greatest = int(self.buckets.edges.min()), int(self.buckets.edges.max())
            self.spans.append((least, greatest - least + 1))
        self.most_codes = prod(size for _, size in self.spans) if self.spans or not self.by else inf
        self.plain = [] if others else self._plain_files(by_duckdb, files)
        self.paths = [path for paths in by_duckdb.values() for path in paths]
        self.has_live = any(place.is_live for place in by_duckdb) or any(one.is_live for _, one in others)
        if self.as_text and by_duckdb and not others:
            own = zip(self.group_columns, self.by, strict=False)
            self.texts = frozenset(
                column
                for column, key in own
                if key.name not in self.computed and key.column_type.storage is Storage.STRING
            )
        parts = [self._read_by_duckdb(place, paths) for place, paths in by_duckdb.items()]
        if others or not parts:
            return " UNION ALL ".join([*parts, self._registered]), self.batches(others)
        return " UNION ALL ".join(parts), None

    def _spans_of(self, files: Sequence[Located], keys: Sequence[Key]) -> list[tuple[int, int]]:
        """See `spans`."""
        ends = []
        for key in keys:
            own: list[Any] = [
                one.file.stats.get(f"{end}.{store.column_names.stored(key.name)}")
                for store, one in files
                for end in ("min", "max")
            ]
            if key.name in self.computed or not key.column_type.is_integer or None in own:
                return []
            ends.append((min(own, default=0), max(own, default=0)))
        return [(least, greatest - least + 1) for least, greatest in ends]

    def _plain_files(
        self, by_duckdb: Mapping[_Place, list[str]], files: Sequence[Located]
    ) -> list[PlainFile]:
        """See `plain`, of files that DuckDB reads by itself."""
        names, places = self._plain_columns, by_duckdb.keys()
        if not names or any(place.batches or place.rows for place in places):
            return []
        if self.measure is not None and any(place.is_cut for place in places):
            return []
        rows = {store.table(f"{EVENTS}/{one.file.path}"): one.file.rows for store, one in files}
        texts = [key.name for key in (*self.by, *self.key) if key.is_text]
        found = []
        for place, paths in by_duckdb.items():
            ticks = ["_tick"] if place.is_cut or self.buckets is not None else []
            columns, own = (place.store.column_names.stored_of(one) for one in ([*names, *ticks], texts))
            found += [
                PlainFile(path, tuple(columns), rows[path], place.is_live, tuple(own)) for path in paths
            ]
        return found

    @property
    def _plain_columns(self) -> list[str]:
        """The columns of plain files that are read, without the tick; none if they do not tell all."""
        if self.expression is not None or self.equal or self.times or self.computed:
            return []
        if self.measure is not None:
            is_read = not self.ticks and self.buckets is None and is_plain(self.measure, self.by)
            return [*(key.name for key in self.by), self.measure.name] if is_read else []
        asked = [*self.by, *self.key]
        is_read = len(self.key) == 1 and not any(key.is_double for key in asked)
        return [key.name for key in asked] if is_read else []

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

    def _divided(
        self, files: Sequence[Located], progress: Progress | None
    ) -> tuple[dict[_Place, list[str]], list[Located]]:
        """The paths of the files that DuckDB reads, by how their rows are selected; and the other files."""
        names = self._asked
        types = {name: self.contents.columns[name] for name in (*SYSTEM_COLUMNS, *names)}
        columns = {store: ScannedColumns(store, types) for store in self.contents.stores}
        by_duckdb: dict[_Place, list[str]] = {}
        stored = [name for store in columns for name in store.column_names.stored_of(types)]
        others, conditions = [], RowConditions([*types, *stored])
        for number, (store, one) in enumerate(files, 1):
            spending.check()
            rows = conditions.of(self._picked.of_file(store, one.file), one.file)
            batches = () if one.is_whole else one.batches
            place = _Place(store, one.is_live, not self._is_inside(one), batches, rows)
            ticks = ["_tick"] if place.is_cut or self.ticks or self.buckets is not None else []
            path = columns[store].path_of(
                one.file.path, [*names, *ticks, *(_BATCH_COLUMNS if place.batches else ())]
            )
            if progress is not None:
                progress(number / len(files))
            if path is None:
                others.append((store, one))
                spending.read(one.file.path, size=one.file.size)
            else:
                by_duckdb.setdefault(place, []).append(path[0])
                spending.read(path[0], rows=self._picked.rows_left(store, one.file), size=path[1])
        return by_duckdb, others

    @property
    def _asked(self) -> list[str]:
        """The columns of `events` that are read, without tidemark's own."""
        asked = [*self._measures, *(key.name for key in (*self.by, *self.key, *self.equal)), *self._columns]
        return [name for name in dict.fromkeys(asked) if name not in self.computed]

    @cached_property
    def range(self) -> Window:
        """The ticks from the first window to the last."""
        return Window(self.windows[0].start, self.windows[-1].stop)

    def _misses(self, one: VisibleFile) -> bool:
        """Whether no rows of the file lie in the windows, by its statistics."""
        ends = _ticks_of(one)
        return ends is not None and self.range.misses(*ends)

    def _is_inside(self, one: VisibleFile) -> bool:
        ends = _ticks_of(one)
        return self.range == ALL_TIME or (ends is not None and self.range.covers(*ends))

    def _read_by_duckdb(self, place: _Place, paths: Sequence[str]) -> str:
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
        asked = [*self._asked, "_tick", *_BATCH_COLUMNS]
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
        groups = [
            (group_name(number), pa.large_binary() if key.is_text else key.stored_type)
            for number, key in enumerate(self.by, 1)
            if key.name not in self.computed
        ]
        groups += [
            (key_name(number), pa.large_binary() if key.is_text else key.stored_type)
            for number, key in enumerate(self.key, 1)
        ]
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

    def batches(self, files: Sequence[Located]) -> Iterator[pa.RecordBatch]:
        """The rows of files that are selected by all but the condition.

        They have the columns of the relation; where `is null` is 1, the stored value means nothing. And they
        have the columns of the condition in their own types.

        Raises DamagedWarehouse as `read_event_rows` does.
        """
        schema = self.schema
        total, done = sum(max(1, one.file.rows) for _, one in files), 0
        for store, one in files:
            read = 0
            for rows in self._read(store, one):
                spending.read(one.file.path, rows=rows.num_rows)
                for start in range(0, rows.num_rows, BATCH_ROWS):
                    yield from self._batch(rows.slice(start, BATCH_ROWS), int(one.is_live), schema)
                read += rows.num_rows
                self.share = (done + min(read, one.file.rows)) / total
            done += max(1, one.file.rows)
            self.share = done / total

    def _read(self, store: Store, one: VisibleFile) -> Iterator[pa.Table]:
        keys = {key.name: key for key in (*self._keys, *self.key, *self._wanted)}
        texts = [name for name, key in keys.items() if key.is_text]
        measures = [name for name in self._measures if name not in self.computed]
        names = dict.fromkeys([*measures, *keys, *self._columns])
        share = EventRowGroups.whole_file(one.file)
        if (rows := self._picked.of_file(store, one.file)) is not None:
            share = share_with_rows(store.filesystem(), share, rows)
        return read_event_rows(store, [share], names, one.batches, texts)

    def _batch(self, rows: pa.Table, live: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows that are selected, as one batch or none."""
        ticks = as_numpy(rows.column("_tick"))
        selected = self.range.holds(ticks)
        keys = {
            key: encode_keys(key, single_array(rows.column(key.name)))
            for key in (*self._keys, *self.key, *self._wanted)
        }
        for key in self._keys:
            selected = selected & ~keys[key].null
        for key, wanted in self._wanted.items():
            selected = selected & is_wanted(keys[key], wanted)
        chosen = np.flatnonzero(selected)
        if not len(chosen):
            return
        columns = [
            arrow_array(np.full(len(chosen), live, np.uint8)),
            *self._values(rows, chosen),
            *(stored_column(key, keys[key], chosen) for key in (*self._keys, *self.key)),
            *([] if self.buckets is None else [arrow_array(self.buckets.of_ticks(ticks[chosen]))]),
            *([arrow_array(ticks[chosen])] if self.ticks else []),
        ]
        picked = rows.select(list(self._columns)).take(arrow_array(chosen))
        columns += [native_column(picked.column(name), schema.field(name)) for name in self._columns]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _values(self, rows: pa.Table, chosen: NDArray[np.int64]) -> list[pa.Array]:
        """Whether the measure of the chosen rows is NULL, and its stored values; nothing if computed."""
        if self.measure is None or self.measure.name in self.computed:
            return []
        values = encode_values(self.measure, single_array(rows.column(self.measure.name)))
        return [arrow_array(values.null[chosen].astype(np.uint8)), arrow_array(values.stored[chosen])]


def _guarded(expression: Expression, guards: Sequence[str], otherwise: str) -> str:
    """SQL of an expression, which is evaluated where the guards are true, if it may fail elsewhere."""
    if expression.never_fails or not guards:
        return f"({expression.sql})"
    return f"CASE WHEN {' AND '.join(guards)} THEN ({expression.sql}) ELSE {otherwise} END"


@dataclass(frozen=True, slots=True)
class _Place:
    """How rows of files that DuckDB reads are selected, in one store.

    is_cut: whether the windows cut them. batches: the visible batches; empty if all are visible.
    rows: a condition of the rows that are read; empty if all are.
    """

    store: Store
    is_live: bool
    is_cut: bool
    batches: tuple[BatchRange, ...]
    rows: str


def _ticks_of(one: VisibleFile) -> tuple[int, int] | None:
    """The first and last tick of a file by its statistics, both inclusive; None if they do not tell."""
    first, last = one.file.stats.get("min._tick"), one.file.stats.get("max._tick")
    return None if first is None or last is None else (first, last)
