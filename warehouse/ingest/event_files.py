"""Writes and rewrites files of `events` in tasks: the rows in the order they come, with exact statistics.

A task writes the rows of its partition into one file and returns what the add action needs. Rows that the
filter refuses go into one file of `rejected`; if the filter is all or nothing, they are only reported. The
columns of source and batch are constant in a file and are added here.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tidemark.warehouse.columns.arrow_types import with_columns_of, with_plain_types
from tidemark.warehouse.columns.coded_texts import coded_texts, plain_bytes, with_used_entries
from tidemark.warehouse.columns.text_values import text_bounds
from tidemark.warehouse.columns.ticks import NO_TICK, TickGrid
from tidemark.warehouse.columns.value_encoding import Measure, encode_values, epoch_micros
from tidemark.warehouse.companions.declared import Companions
from tidemark.warehouse.delta.data_files import NewFile, unique_name
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.delta.write_behind import uploading
from tidemark.warehouse.events import origins
from tidemark.warehouse.events.origins import Ints, OriginsCollector, origins_in
from tidemark.warehouse.events.reader import BatchRange, decode_rows
from tidemark.warehouse.ingest.column_casts import cast_rows
from tidemark.warehouse.ingest.private_rows import WrappedTokens
from tidemark.warehouse.ingest.rejected import write_rejected
from tidemark.warehouse.ingest.row_filter import RefusedRows, RowFilter, filter_rows
from tidemark.warehouse.integrity.row_sample import NO_ROWS, RowSample, RowSampler
from tidemark.warehouse.integrity.sealed_files import SEAL, SealedWriter, open_sealed
from tidemark.warehouse.ledger.batch_summaries import TickSummarizer, TickSummary
from tidemark.warehouse.settings.allowed_columns import SYSTEM_COLUMNS
from tidemark.warehouse.settings.options import Options

# A column of integers gets no dictionary if of so many first rows more than this share differ: a dictionary
# of numbers that seldom repeat takes several times as long to make as the numbers, and saves nothing.
DICTIONARY_ROWS, MOST_DISTINCT = 2**14, 0.75
LEAST_SAVING = 0.1  # the share that compression of a column has to save
STATISTICS_COLUMNS = 35  # Delta's own 32 and the three system columns
_DIGITS = 15  # a decimal with at most 15 digits survives as a float, as JSON readers parse it


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A new file of the table `kind`, with the summaries of its rows by tick, or a sample of its rows."""

    kind: Literal["events", "rejected"]
    file: NewFile
    summaries: tuple[TickSummary, ...] = ()
    sample: RowSample = NO_ROWS


@dataclass(frozen=True, slots=True)
class WriteRows:
    """Writes the rows of one partition of a batch as a file of `events`.

    `schema` is that of `events`, by stored names, system columns first. `names` are the columns of the
    warehouse that the rows have: the rows' columns are taken by place, whatever they are called, and are
    cast (`column_casts.py`). `step` is the tick of all rows if the warehouse has no time column. With `eps`,
    the rows are summarised by tick while they are written, without it a sample is taken; `companions` are
    those of the options, with their kinds.
    """

    store: Store
    schema: pa.Schema
    names: tuple[str, ...]
    batch: BatchRange
    options: Options
    step: int
    row_filter: RowFilter
    eps: float | None
    companions: Companions

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[WrittenFile | RefusedRows]:
        """Yields a file of the rows taken, if any, and a file of the rows refused, if any.

        If the filter is all or nothing, refused rows get no file: their number and the first are yielded.
        """
        self.companions.register()
        summaries = None if self.eps is None else TickSummarizer(self.options, self.eps)
        refused: list[dict[str, Any]] = []
        count = 0
        schema = self.options.names.of_schema(self.schema)
        user_schema = pa.schema(list(schema)[len(SYSTEM_COLUMNS) :])
        sampler = sampler_of(self.options) if self.eps is None else None
        last: pa.Table | None = None
        with uploading() as uploads, RowFile(self.store, self.schema) as file:
            for batch in batches:
                rows = cast_rows(batch, user_schema, self.names)
                taken, number, records = filter_rows(self.row_filter, self.options, user_schema.names, rows)
                count += number
                refused += records
                if taken.num_rows:
                    if sampler is not None:
                        sampler.add(taken)
                    self._summarise(summaries, last)
                    last = self._complete(taken, schema)
                    file.write(last.rename_columns(self.schema.names))
        self._summarise(summaries, last)  # while the file goes up
        by_tick = () if summaries is None else tuple(summaries.finish())
        for upload in uploads:
            upload.result()
        if file.rows:
            sample = NO_ROWS if sampler is None else sampler.sample
            yield WrittenFile("events", file.written(), by_tick, sample)
        if count and self.row_filter.all_or_nothing:
            yield RefusedRows(count, refused[0])
        elif refused:
            yield WrittenFile("rejected", write_rejected(self.store, self.batch, refused))

    def _summarise(self, summaries: TickSummarizer | None, rows: pa.Table | None) -> None:
        if summaries is not None and rows is not None:
            summaries.add(decode_rows(rows, summaries.columns, self.options.keys, self.companions))

    def _complete(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
        rows = batch.num_rows
        ticks = self._ticks(batch, schema)
        system = [pa.repeat(self.batch.source, rows), pa.repeat(self.batch.first, rows), ticks]
        user = batch.columns[: len(schema) - len(system)]
        return pa.Table.from_arrays([*system, *user], names=schema.names).cast(schema)

    def _ticks(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.Array:
        time, grid = self.options.time_column, self.options.grid
        if time is None or grid is None:
            return pa.repeat(self.step, batch.num_rows)
        place = schema.names.index(time.name) - len(SYSTEM_COLUMNS)
        return pa.array(event_ticks(time, grid, batch.column(place)))


def event_ticks(time: Measure, grid: TickGrid, times: pa.Array) -> NDArray[np.int64]:
    """The tick of each time of the column `time`; NO_TICK for NULL."""
    column = encode_values(time, times)
    ticks: NDArray[np.int64] = np.where(column.null, NO_TICK, grid.tick_of(epoch_micros(time, column.stored)))
    return ticks


def sampler_of(options: Options) -> RowSampler:
    """Takes samples of rows whose first columns are those of the options."""
    return RowSampler([name for name, _ in options.columns], options.time_column, options.measure())


@dataclass(frozen=True, slots=True)
class JoinFiles:
    """Writes the rows of files of `events`, by paths in the table, into one, with newer tokens if given."""

    store: Store
    schema: pa.Schema
    paths: tuple[str, ...]
    tokens: WrappedTokens | None = None

    def run(self) -> NewFile:
        """Writes the file and returns it."""
        filesystem = self.store.filesystem()
        with RowFile(self.store, self.schema) as file:
            for path in self.paths:
                with open_sealed(filesystem, f"{EVENTS}/{path}", checksums=True) as old_file:
                    old, start = origins_in(old_file, path), 0
                    for group in range(old_file.metadata.num_row_groups):
                        rows = with_plain_types(old_file.read_group(group))
                        if self.tokens is not None:
                            rows = self.tokens.of(rows)
                        of_rows = old.of_rows(start, start + rows.num_rows)
                        file.write(with_columns_of(self.schema, rows), of_rows)
                        start += rows.num_rows
        return file.written()


class RowFile:
    """A new file of `events`, written row group by row group; it is created with the first row group.

    Texts that come as dictionaries are written as such, with the entries that some row has and no others.
    """

    def __init__(self, store: Store, schema: pa.Schema) -> None:
        self.rows, self._size = 0, 0
        self._filesystem = store.filesystem()
        self._group_rows, self._group_bytes = store.tuning.group_rows, store.tuning.group_bytes
        self._schema = schema
        self._path = f"{unique_name()}.parquet"
        self._footers: list[pq.FileMetaData] = []
        self._writer: SealedWriter | None = None
        self._buffer: list[pa.Table] = []
        self._buffer_rows, self._buffer_bytes = 0, 0
        self._coded: list[str] | None = None  # the columns that are dictionaries in the first rows
        self._loose: set[str] = set()  # the Parquet columns that are not compressed
        self._nulls = Counter[str]()
        self._floats = {field.name: _FloatRange() for field in schema if pa.types.is_floating(field.type)}
        told = [field for field in list(schema)[:STATISTICS_COLUMNS] if not pa.types.is_nested(field.type)]
        self._origins = OriginsCollector([field.name for field in told])

    def __enter__(self) -> RowFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: Any) -> None:
        if kind is None:
            self._flush()
        if self._writer is not None:
            if kind is None and (told := self._origins.finish()) is not None:
                self._writer.add_text(origins.KEY, told.to_text(self._path))
            self._writer.__exit__(kind, *raised)
            self._size = self._writer.size

    @property
    def id(self) -> int:
        """The id of the file."""
        return origins.file_id(self._path)

    def compress_as(self, earlier: pq.FileMetaData) -> None:
        """Leaves columns uncompressed if compression saved too little in a file with the same rows.

        Nothing is known from files that others wrote without compression, or with a weaker one.
        """
        known = {"ZSTD", "UNCOMPRESSED"} if SEAL in (earlier.metadata or {}) else {"ZSTD"}
        groups = [earlier.row_group(group) for group in range(earlier.num_row_groups)]
        for place in range(earlier.num_columns):
            chunks = [group.column(place) for group in groups]
            size = sum(chunk.total_uncompressed_size for chunk in chunks)
            least = (1 - LEAST_SAVING) * size
            is_known = known.issuperset(chunk.compression for chunk in chunks)
            if is_known and sum(chunk.total_compressed_size for chunk in chunks) > least:
                self._loose.add(earlier.schema.column(place).path)

    def write(self, table: pa.Table, origins_of: tuple[Ints, Ints] | None = None) -> None:
        """Adds rows of the file's schema, of which columns of text may be dictionaries (`coded_texts`).

        origins_of: for rows that are copied from earlier files, the origin file and the origin row of each.
            Either all rows of a file have an origin, or none.
        """
        if self._coded is None:
            self._coded = coded_texts(table.schema)
        elif self._coded != coded_texts(table.schema):
            table = with_plain_types(table, self._coded)
        if origins_of is not None:
            self._origins.add(table, origins_of)
        for name, bounds in self._floats.items():
            bounds.add(table.column(name))
        self._nulls.update({name: table.column(name).null_count for name in table.column_names})
        while table.num_rows:
            room = self._group_rows - self._buffer_rows
            part, table = table.slice(0, room), table.slice(room)
            self._buffer.append(part)
            self._buffer_rows += part.num_rows
            self._buffer_bytes += plain_bytes(part)
            if part.num_rows == room or self._buffer_bytes >= self._group_bytes:
                self._flush()

    def _flush(self) -> None:
        if not self._buffer:
            return
        group = with_used_entries(pa.concat_tables(self._buffer), self._coded or ())
        if self._writer is None:
            repeated = _repeated_columns(self._schema, group)
            self._writer = SealedWriter(
                self._filesystem,
                f"{EVENTS}/{self._path}",
                group.schema,
                store_schema=not self._coded,  # it would say that these texts are dictionaries
                compression=self._codecs(),
                store_decimal_as_integer=True,
                # Parquet's statistics leave out NaN, and a dictionary with -0.0 has no 0.0. An engine that
                # prunes row groups by them would lose rows.
                write_statistics=[
                    path for path, kind in _leaves(self._schema).items() if not pa.types.is_floating(kind)
                ],
                use_dictionary=repeated,
                column_encoding=_packed_columns(self._schema, repeated),
                metadata_collector=self._footers,
            )
        self._writer.write(group)
        self.rows += group.num_rows
        self._buffer, self._buffer_rows, self._buffer_bytes = [], 0, 0

    def _codecs(self) -> str | dict[str, str]:
        if not self._loose:
            return "zstd"
        return {path: "zstd" for path in _leaves(self._schema) if path not in self._loose}

    def written(self) -> NewFile:
        """The file for its add action, with statistics. It must be closed and have rows."""
        stats = json.dumps(statistics(self._footers[0], self._schema, self._floats))
        return NewFile(self._path, self._size, self.rows, stats, json.dumps(+self._nulls))


@dataclass(slots=True)
class _FloatRange:
    """The range of a column of floats. NaN is greater than every number, as in Spark.

    `most` is NaN if the column has one; JSON cannot express NaN, so the file then has no upper bound.
    """

    nulls: int = 0
    least: float = math.inf
    most: float = -math.inf

    def add(self, column: pa.ChunkedArray) -> None:
        self.nulls += column.null_count
        if column.null_count < len(column):
            ends = pc.min_max(column)
            if pc.any(pc.is_nan(column)).as_py():
                self.most = math.nan
            else:
                self.most = max(self.most, ends["max"].as_py())
            if not math.isnan(ends["min"].as_py()):
                self.least = min(self.least, ends["min"].as_py())


def _leaves(fields: Iterable[pa.Field], parent: str = "") -> dict[str, pa.DataType]:
    """The types of the Parquet columns by their paths, which begin with `parent` for nested columns."""
    leaves: dict[str, pa.DataType] = {}
    for field in fields:
        path, kind = parent + field.name, field.type
        if pa.types.is_struct(kind):
            leaves |= _leaves(kind.fields, path + ".")
        elif pa.types.is_list(kind):
            leaves |= _leaves([kind.value_field.with_name("element")], path + ".list.")
        elif pa.types.is_map(kind):
            entry = [kind.key_field.with_name("key"), kind.item_field.with_name("value")]
            leaves |= _leaves(entry, path + ".key_value.")
        else:
            leaves[path] = kind
    return leaves


def _repeated_columns(schema: pa.Schema, first: pa.Table) -> list[str]:
    """The paths of the Parquet columns that get a dictionary; `first` are the first rows of the file.

    Times seldom repeat, as floats do.
    """
    seldom = set()
    for field in schema:
        if pa.types.is_integer(field.type):
            sample = first.column(field.name).slice(0, DICTIONARY_ROWS)
            if pc.count_distinct(sample).as_py() > MOST_DISTINCT * DICTIONARY_ROWS:
                seldom.add(field.name)
    return [
        path
        for path, kind in _leaves(schema).items()
        if path not in seldom and not pa.types.is_floating(kind) and not pa.types.is_timestamp(kind)
    ]


def _packed_columns(schema: pa.Schema, repeated: Sequence[str]) -> dict[str, str]:
    """The encoding of the integers and times without a dictionary: differences, in few bits each.

    They take less space than numbers that only zstd makes smaller, and a third of the time.
    """
    return {
        field.name: "DELTA_BINARY_PACKED"
        for field in schema
        if (pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type))
        and field.name not in repeated
    }


def statistics(
    footer: pq.FileMetaData, schema: pa.Schema, floats: Mapping[str, _FloatRange]
) -> dict[str, Any]:
    """Delta's statistics of a file, for its first STATISTICS_COLUMNS columns that are not nested.

    A bound that JSON cannot express is left out. Bounds of text are truncated and bounds of times are rounded
    to milliseconds, both outwards, as Delta's readers expect.
    """
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    leaves = {footer.schema.column(i).path: i for i in range(footer.num_columns)}
    for field in list(schema)[:STATISTICS_COLUMNS]:
        low = high = None
        if field.name in floats:
            bounds = floats[field.name]
            nulls[field.name] = bounds.nulls
            low, high = _finite(bounds.least), _finite(bounds.most)
        elif not pa.types.is_nested(field.type) and "." not in field.name:
            chunks = [footer.row_group(g).column(leaves[field.name]) for g in range(footer.num_row_groups)]
            if any(not chunk.is_stats_set or not chunk.statistics.has_null_count for chunk in chunks):
                continue
            nulls[field.name] = sum(chunk.statistics.null_count for chunk in chunks)
            filled = [chunk.statistics for chunk in chunks if chunk.statistics.null_count < chunk.num_values]
            if filled and all(group.has_min_max for group in filled):
                low, high = _range(filled, field.type)
        if low is not None:
            least[field.name] = low
        if high is not None:
            most[field.name] = high
    return {"minValues": least, "maxValues": most, "nullCount": nulls}


def _finite(bound: float) -> float | None:
    return bound if math.isfinite(bound) else None


def _range(groups: Sequence[pq.Statistics], kind: pa.DataType) -> tuple[Any, Any]:
    """The least and the greatest value as JSON expresses them; None for what JSON cannot express."""
    if pa.types.is_timestamp(kind):
        # In milliseconds, the upper bound rounded up.
        low = min(group.min_raw for group in groups) // 1000
        high = -(-max(group.max_raw for group in groups) // 1000)
        return _time(low, "ms", "Z"), _time(high, "ms", "Z")
    if pa.types.is_date(kind):
        first, last = min(group.min_raw for group in groups), max(group.max_raw for group in groups)
        return _time(first, "D"), _time(last, "D")
    exact = pa.types.is_integer(kind) or pa.types.is_string(kind)
    if not exact and not (pa.types.is_decimal(kind) and kind.precision <= _DIGITS):
        return None, None
    try:
        low, high = min(group.min for group in groups), max(group.max for group in groups)
    except UnicodeDecodeError:  # an engine wrote bytes that are not UTF-8 into a text column
        return None, None
    if isinstance(low, str):
        return text_bounds(low, high)
    if isinstance(low, Decimal):
        return float(low), float(high)
    return low, high


def _time(count: int, unit: Literal["ms", "D"], zone: str = "") -> str | None:
    """A count of units since 1970 in ISO form; None outside the years 1 to 9999, which ISO form needs."""
    text = str(np.datetime64(count, unit))
    year = text.split("-", maxsplit=1)[0]
    return text + zone if len(year) == len("9999") and year != "0000" else None
