"""The rows of `events` that a scan looks at, as batches for DuckDB, filtered by all but the expression.

Rows are read by warehouse/events/reader.py: only rows of the visible batches, from local disks and object
stores alike, compared with the files' seals. Files without rows of the batches or the window are not opened.
The measure and the columns of groups are encoded as loads encode them, so a value is the same number here and
there. The columns of the expression stay in their own types.

A batch has these columns; no column of a warehouse can have their names, because Delta refuses spaces:

    is live          1 for rows of live batches, 0 for rows of history
    is null          1 if the measure is NULL
    stored value     the measure as it is stored, undefined where it is NULL
    group 1 ...      the names (columns/keys.py) of the columns of the group, which are not NULL
    and the columns of the expression
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import Field, Schema
from deltalake.schema import PrimitiveType
from numpy.typing import NDArray

from tidemark.warehouse.columns.arrow_buffers import arrow_array
from tidemark.warehouse.columns.arrow_types import plain_type
from tidemark.warehouse.columns.column_types import find_column_type, key_type_names
from tidemark.warehouse.columns.keys import (
    Key,
    KeyColumn,
    Name,
    encode_keys,
    find_names,
    names_from,
    take_names,
)
from tidemark.warehouse.columns.tick_counts import window_codes
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.columns.value_encoding import Measure, as_numpy, encode_values, single_array
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.events.reader import BatchRange, EventRowGroups, read_event_rows
from tidemark.warehouse.settings.option_checks import SYSTEM_COLUMNS
from tidemark.warehouse.snapshots.system_tables import Contents

LIVE, NULL, VALUE = "is live", "is null", "stored value"
BATCH_ROWS = 2**17  # of a batch: DuckDB's threads share the batches of a row group


def group_name(number: int) -> str:
    """The name of a column of the group; they are counted from 1."""
    return f"group {number}"


def key_of(contents: Contents, name: str) -> Key:
    """A column by which rows are grouped or selected; InputError if there is none, or of another type."""
    columns = {column: kind for column, kind in contents.columns.items() if column not in SYSTEM_COLUMNS}
    if name not in columns:
        raise InputError(f"there is no column {name!r}. Expected one of: {', '.join(columns)}.")
    kind = find_column_type(columns[name])
    if kind is None or not kind.is_key:
        raise InputError(
            f"the column {name!r} is of type {columns[name]}, which cannot group or select rows. "
            f"Expected one of: {key_type_names()}."
        )
    return Key(name, columns[name])


@dataclass
class RowSource:
    """The rows of one scan.

    contents   the visible batches
    windows    the ticks of the rows: one window, or windows that ascend and do not overlap
    measure    the column that is counted and ranked
    by         the columns of the group; a row with NULL in one of them is left out
    equal      the allowed values of columns
    columns    the columns of the expression

    With several windows, the index of a row's window is the last column of its group.

    `rows` is the number of rows of the windows that were looked at so far, `share` the share of the files'
    rows that were read, from 0 to 1.
    """

    contents: Contents
    windows: Sequence[Window]
    measure: Measure
    by: tuple[Key, ...]
    equal: Mapping[Key, Sequence[Any]]
    columns: tuple[str, ...]
    rows: int = 0
    share: float = 0.0
    _wanted: dict[Key, Any] = field(init=False)

    def __post_init__(self) -> None:
        self._wanted = {key: _names_of_values(key, values) for key, values in self.equal.items()}

    @property
    def schema(self) -> pa.Schema:
        """The columns of the batches."""
        groups = [
            (group_name(number), pa.large_binary() if key.is_text else pa.int64())
            for number, key in enumerate(self.by, 1)
        ]
        if len(self.windows) > 1:
            groups.append((group_name(len(self.by) + 1), pa.int64()))
        own = [(LIVE, pa.uint8()), (NULL, pa.uint8()), (VALUE, self.measure.arrow_type), *groups]
        return pa.schema([*own, *self._expression_fields()])

    def _expression_fields(self) -> list[pa.Field]:
        kinds = [Field(name, PrimitiveType(self.contents.columns[name])) for name in self.columns]
        return [pa.field(one.name, plain_type(one.type)) for one in pa.schema(Schema(kinds))]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The batches, those of history first.

        Raises DamagedWarehouse as `Contents.event_files` and `read_event_rows` do.
        """
        schema = self.schema
        shares = [
            (live, ranges, file)
            for live, ranges in enumerate((self.contents.history, self.contents.live))
            for file in self.contents.event_files(ranges)
            if self._may_have_rows(file)
        ]
        total, done = sum(max(1, file.rows) for _, _, file in shares), 0
        for live, ranges, file in shares:
            read = 0
            for rows in self._read(file, ranges):
                for start in range(0, rows.num_rows, BATCH_ROWS):
                    yield from self._batch(rows.slice(start, BATCH_ROWS), live, schema)
                read += rows.num_rows
                self.share = (done + min(read, file.rows)) / total
            done += max(1, file.rows)
            self.share = done / total

    def _may_have_rows(self, file: DataFile) -> bool:
        """Whether rows of the file may lie in the window, by its statistics."""
        first, last = file.stats.get("min._tick"), file.stats.get("max._tick")
        return (
            first is None
            or last is None
            or not Window(self.windows[0].start, self.windows[-1].stop).misses(first, last)
        )

    def _read(self, file: DataFile, ranges: Sequence[BatchRange]) -> Iterator[pa.Table]:
        keys = {key.name: key for key in (*self.by, *self._wanted)}
        texts = [name for name, key in keys.items() if key.is_text]
        names = dict.fromkeys([self.measure.name, *keys, *self.columns])
        shares = [EventRowGroups.whole_file(file)]
        return read_event_rows(self.contents.store.filesystem(), shares, names, ranges, texts)

    def _batch(self, rows: pa.Table, live: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows that are selected, as one batch or none."""
        places = window_codes(as_numpy(rows.column("_tick")), self.windows)
        selected = places >= 0
        self.rows += int(np.count_nonzero(selected))
        keys = {
            key: encode_keys(key, single_array(rows.column(key.name))) for key in (*self.by, *self._wanted)
        }
        for key in self.by:
            selected = selected & ~keys[key].null
        for key, wanted in self._wanted.items():
            selected = selected & _is_wanted(keys[key], wanted)
        chosen = np.flatnonzero(selected)
        if not len(chosen):
            return
        values = encode_values(self.measure, single_array(rows.column(self.measure.name)))
        columns = [
            arrow_array(np.full(len(chosen), live, np.uint8)),
            arrow_array(values.null[chosen].astype(np.uint8)),
            arrow_array(values.stored[chosen]),
            *(_group_column(keys[key], chosen) for key in self.by),
            *([arrow_array(places[chosen])] if len(self.windows) > 1 else []),
        ]
        picked = rows.select(list(self.columns)).take(arrow_array(chosen))
        columns += [_native_column(picked.column(name), schema.field(name)) for name in self.columns]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _names_of_values(key: Key, values: Sequence[Any]) -> Any:
    """The names of the values, ascending, each once; values that no row can have are left out."""
    names: set[Name] = {name for value in values if (name := key.name_of(value)) is not None}
    return names_from(key, sorted(names))


def _is_wanted(column: KeyColumn, wanted: Any) -> NDArray[np.bool_]:
    """A mask of the rows whose name is among the ascending wanted names."""
    if isinstance(wanted, np.ndarray):
        among = np.isin(np.asarray(column.names), wanted)
    else:
        among = find_names(wanted, column.names) >= 0
    if column.codes is None:
        return np.asarray(among & ~column.null)
    found = ~column.null
    found[found] = among[column.codes[found]]  # codes of NULL mean nothing, and there may be no names
    return found


def _group_column(column: KeyColumn, chosen: NDArray[np.int64]) -> pa.Array:
    """The names of the chosen rows as an Arrow array."""
    names = take_names(column.names, chosen if column.codes is None else column.codes[chosen])
    return arrow_array(names) if isinstance(names, np.ndarray) else names


def _native_column(column: pa.ChunkedArray, item: pa.Field) -> pa.Array:
    """A column of the expression in its own type; InputError for text that is not UTF-8."""
    array = single_array(column)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"the column {item.name!r} has text that is not UTF-8, which expressions cannot use ({error}). "
            "Select its rows by equality instead, or leave the column out of the expression."
        ) from None
    return array.cast(item.type)
