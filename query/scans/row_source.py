"""The rows of `events` that a scan looks at (asked_rows.py), as a relation of DuckDB: which files have them.

DuckDB reads most files by itself (duckdb_files.py). Files that, by the table's log, lie in the windows or are
visible as a whole get no filter for that. The rows of the others come through warehouse/events/reader.py as
batches, encoded as loads encode them, so a value is the same number in both. Files without rows of the
batches or the windows are not opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, prod
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.query.reading import spending
from tidemark.query.reading.connections import Progress
from tidemark.query.scans.asked_rows import BATCH_COLUMNS, AskedRows, Place
from tidemark.query.scans.duckdb_files import ScannedColumns
from tidemark.query.scans.encoded_rows import is_wanted, native_column, stored_column
from tidemark.query.scans.picked_rows import PickedRows, RowConditions
from tidemark.query.scans.plain_files import PlainFile, is_plain
from tidemark.warehouse.columns.arrow_buffers import arrow_array
from tidemark.warehouse.columns.column_types import Storage
from tidemark.warehouse.columns.keys import Key, encode_keys
from tidemark.warehouse.columns.ticks import ALL_TIME
from tidemark.warehouse.columns.value_encoding import as_numpy, encode_values, single_array
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.events.reader import EventRowGroups, read_event_rows, share_with_rows
from tidemark.warehouse.events.visible_files import VisibleFile
from tidemark.warehouse.settings.allowed_columns import SYSTEM_COLUMNS

Located: TypeAlias = tuple[Store, VisibleFile]

BATCH_ROWS = 2**17  # of a batch: DuckDB's threads share the batches of a row group


@dataclass
class RowSource(AskedRows):
    """The rows of one scan, and the files that have them.

    as_text     whether text of the group may stay text in the relation (`texts`): that is grouped faster
    summed      whether sums of each group are asked

    Once there is a relation:

    paths       the files that DuckDB reads by itself
    has_live    whether a file has live rows
    most_rows   the rows of all files, times the number of windows that a row may be in
    rows_left   how many rows indexes left to be read; None without an index
    share       the share of the other files' rows that was read, from 0 to 1
    most_codes  about how many groups there may be, if their columns are integers: as many as the statistics
                of the files leave room for; else infinite
    spans       of each column of the group the least number, and how many there may be from it on; empty if
                they are not all integers with statistics
    key_spans   the same of the columns of the key
    plain       the files, if plain_files.py reads all that is selected of them: their rows, or those of a key
                in a window; else empty
    """

    as_text: bool = False
    summed: bool = False
    share: float = 0.0
    paths: list[str] = field(default_factory=list, init=False)
    has_live: bool = field(default=False, init=False)
    most_rows: float = field(default=0, init=False)
    most_codes: float = field(default=inf, init=False)
    spans: list[tuple[int, int]] = field(default_factory=list, init=False)
    key_spans: list[tuple[int, int]] = field(default_factory=list, init=False)
    plain: list[PlainFile] = field(default_factory=list, init=False)
    rows_left: int | None = field(default=None, init=False)
    _picked: PickedRows = field(init=False)

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

    def _plain_files(self, by_duckdb: Mapping[Place, list[str]], files: Sequence[Located]) -> list[PlainFile]:
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

    def _divided(
        self, files: Sequence[Located], progress: Progress | None
    ) -> tuple[dict[Place, list[str]], list[Located]]:
        """The paths of the files that DuckDB reads, by how their rows are selected; and the other files."""
        names = self._asked
        types = {name: self.contents.columns[name] for name in (*SYSTEM_COLUMNS, *names)}
        columns = {store: ScannedColumns(store, types) for store in self.contents.stores}
        by_duckdb: dict[Place, list[str]] = {}
        stored = [name for store in columns for name in store.column_names.stored_of(types)]
        others, conditions = [], RowConditions([*types, *stored])
        for number, (store, one) in enumerate(files, 1):
            spending.check()
            rows = conditions.of(self._picked.of_file(store, one.file), one.file)
            batches = () if one.is_whole else one.batches
            place = Place(store, one.is_live, not self._is_inside(one), batches, rows)
            ticks = ["_tick"] if place.is_cut or self.ticks or self.buckets is not None else []
            path = columns[store].path_of(
                one.file.path, [*names, *ticks, *(BATCH_COLUMNS if place.batches else ())]
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

    def _misses(self, one: VisibleFile) -> bool:
        """Whether no rows of the file lie in the windows, by its statistics."""
        ends = _ticks_of(one)
        return ends is not None and self.range.misses(*ends)

    def _is_inside(self, one: VisibleFile) -> bool:
        ends = _ticks_of(one)
        return self.range == ALL_TIME or (ends is not None and self.range.covers(*ends))

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


def _ticks_of(one: VisibleFile) -> tuple[int, int] | None:
    """The first and last tick of a file by its statistics, both inclusive; None if they do not tell."""
    first, last = one.file.stats.get("min._tick"), one.file.stats.get("max._tick")
    return None if first is None or last is None else (first, last)
