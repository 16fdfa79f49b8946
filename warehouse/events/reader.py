"""Reads `events` without a JVM: the values and keys of given batches, one row group at a time.

Loads sort these rows, streams sketch them and exact answers count them. All of them use `read_decoded_rows`,
so a value is stored, sketched and counted as the same number.

Statistics prune files and row groups. Where they do not prove that all rows of a row group belong to the
batches, the rows are filtered by their columns `_source` and `_batch`.

A file may lack columns that came after it (`load(..., evolve=True)`), and may have columns of a narrower
type. Missing columns are NULL, of Arrow's type null; `encode_values` and `encode_keys` take both as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from numpy.typing import NDArray
from pyarrow import fs

from tidemark.warehouse.columns.arrow_buffers import arrow_array, integer, text
from tidemark.warehouse.columns.arrow_types import with_plain_types
from tidemark.warehouse.columns.column_names import ColumnNames
from tidemark.warehouse.columns.keys import Key, KeyColumn
from tidemark.warehouse.columns.value_encoding import (
    DecodedColumn,
    Measure,
    as_numpy,
    encode_values,
    single_array,
)
from tidemark.warehouse.companions.declared import Companions
from tidemark.warehouse.delta.data_files import DataFile, list_files
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.origins import Origins, origins_in
from tidemark.warehouse.integrity.sealed_files import SealedFile, open_sealed
from tidemark.warehouse.os_errors import report_unreadable_file
from tidemark.warehouse.sizes import packed

_OWN_COLUMNS = ("_source", "_batch", "_tick")
# The origin of a row (origins.py), which `read_event_rows` adds where asked for: the id of its file, and its
# number there from 0. No column of a warehouse has a name with a space.
FILE_OF_ROW, ROW_IN_FILE = "file of row", "row in file"
BULK = "load:"  # prefix of the sources of bulk batches; a stream's name must not start with it


@dataclass(frozen=True, slots=True, order=True)
class BatchRange:
    """The batches first..last of one source; both bounds are inclusive."""

    source: str
    first: int
    last: int

    @property
    def text(self) -> str:
        """The range as text, for messages."""
        if self.first == self.last:
            return f"batch {self.first} of {self.source!r}"
        return f"batches {self.first} to {self.last} of {self.source!r}"

    def holds(self, source: str, batch: int) -> bool:
        """Whether the batch is in this range."""
        return source == self.source and self.first <= batch <= self.last

    def overlaps(self, other: BatchRange) -> bool:
        """Whether both ranges have a batch in common."""
        return self.source == other.source and self.first <= other.last and other.first <= self.last

    def within(self, other: BatchRange) -> bool:
        """Whether all batches of this range are in the other range."""
        return self.source == other.source and other.first <= self.first and self.last <= other.last


def outer_first(batches: BatchRange) -> tuple[str, int, int]:
    """A key by which ranges that nest are sorted, each before those inside it."""
    return batches.source, batches.first, -batches.last


@dataclass(frozen=True, slots=True)
class EventRowGroups:
    """Row groups of one file of events.

    `path` is relative to the warehouse. `groups` are numbers of row groups, None for all. `rows` is how many
    rows they have, negative if that is unknown.
    """

    path: str
    groups: tuple[int, ...] | None
    rows: int

    @classmethod
    def whole_file(cls, file: DataFile) -> EventRowGroups:
        """All row groups of a file."""
        return cls(f"{EVENTS}/{file.path}", None, file.rows)


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """Decoded rows as columns of one length: ticks, one column per measure, and one per key.

    `companions` are the columns of the companions as they are in `events`.
    """

    ticks: NDArray[np.int64]
    columns: tuple[DecodedColumn, ...]
    keys: tuple[KeyColumn, ...]
    companions: tuple[pa.Array, ...]


def files_of_batches(table: DeltaTable, batches: Iterable[BatchRange]) -> list[DataFile]:
    """The files of `events` that may contain rows of the batches, by their statistics."""
    return files_with(list_files(table), list(batches))


def files_with(files: Iterable[DataFile], batches: Collection[BatchRange]) -> list[DataFile]:
    """Those of the files that may contain rows of the batches, by their statistics."""
    return [file for file in files if any(may_contain(file, wanted) for wanted in batches)]


def may_contain(file: DataFile, batches: BatchRange) -> bool:
    """Whether the file may contain rows of the batches, by its statistics."""
    first, last = file.stats.get("min._batch"), file.stats.get("max._batch")
    if first is not None and last is not None and (last < batches.first or first > batches.last):
        return False
    # Delta's statistics truncate long text. A truncated minimum is still a lower bound. A truncated maximum
    # may be a prefix, so sources that start with it count as inside.
    low, high = file.stats.get("min._source"), file.stats.get("max._source")
    return low is None or high is None or low <= batches.source <= high or batches.source.startswith(high)


def split_row_groups(
    filesystem: fs.FileSystem, files: Sequence[DataFile], rows: int
) -> list[list[EventRowGroups]]:
    """The files' row groups, in order, as lists of at most `rows` rows: one list per task.

    A row group with more rows has a list of its own. Files of at most `rows` rows are not split.
    """
    shares: list[EventRowGroups] = []
    for file in files:
        whole = EventRowGroups.whole_file(file)
        if 0 <= file.rows <= rows:
            shares.append(whole)
            continue
        with report_unreadable_file(whole.path):
            metadata = pq.read_metadata(whole.path, filesystem=filesystem)
        counts = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        shares.extend(EventRowGroups(whole.path, (i,), count) for i, count in enumerate(counts))
    return packed(shares, attrgetter("rows"), rows)


def share_with_rows(
    filesystem: fs.FileSystem, share: EventRowGroups, rows: NDArray[np.int64]
) -> EventRowGroups:
    """The row groups of a whole file that have the rows with these numbers, which ascend."""
    with report_unreadable_file(share.path):
        metadata = pq.read_metadata(share.path, filesystem=filesystem)
    counts = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    edges = np.cumsum([0, *counts])
    groups = np.unique(np.searchsorted(edges, rows, side="right") - 1).tolist()
    return EventRowGroups(share.path, tuple(groups), sum(counts[group] for group in groups))


def read_decoded_rows(
    store: Store,
    shares: Iterable[EventRowGroups],
    measures: Sequence[Measure],
    batches: Sequence[BatchRange],
    keys: Sequence[Key],
    companions: Companions | None = None,
) -> Iterator[DecodedRows]:
    """The decoded rows of the shares that belong to the batches, one row group at a time."""
    names = [*(measure.name for measure in measures), *(name for key in keys for name in key.columns)]
    names += companions.columns if companions else ()
    texts = list(dict.fromkeys(name for key in keys for name in key.texts))
    for rows in read_event_rows(store, shares, names, batches, texts):
        yield decode_rows(rows, measures, keys, companions)


def read_event_rows(
    store: Store,
    shares: Iterable[EventRowGroups],
    columns: Iterable[str],
    batches: Sequence[BatchRange] | None,
    texts: Sequence[str] = (),
    *,
    checksums: bool = False,
) -> Iterator[pa.Table]:
    """The rows of the shares that belong to the batches (None: all), one table per row group that has any.

    A table has `_tick` and the columns, by the names that the store has for them, which may be FILE_OF_ROW
    and ROW_IN_FILE, too, and also `_source` and `_batch` where it was filtered by them. The columns `texts`
    are dictionaries; a column that a file lacks is of type null. Rows are compared with the file's seal;
    `checksums` also checks the pages' checksums. DamagedWarehouse if a file cannot be read or differs.
    """
    asked, own = list(dict.fromkeys(["_tick", *columns])), store.column_names
    places = [name for name in (FILE_OF_ROW, ROW_IN_FILE) if name in asked]
    names = own.stored_of(name for name in asked if name not in places)
    texts = own.stored_of(texts)
    for share in shares:
        with open_sealed(store.filesystem(), share.path, texts=texts, checksums=checksums) as file:
            origins = origins_in(file, share.path.removeprefix(f"{EVENTS}/")) if places else None
            for group in range(file.metadata.num_row_groups) if share.groups is None else share.groups:
                overlap = "all" if batches is None else group_overlap(file.metadata.row_group(group), batches)
                if overlap == "none":
                    continue
                needed = names if overlap == "all" else list(dict.fromkeys([*names, "_source", "_batch"]))
                table = with_plain_types(read_columns(file, group, needed, own.private), texts)
                if origins is not None:
                    before = sum(file.metadata.row_group(one).num_rows for one in range(group))
                    table = _with_origins(table, origins, before, places)
                table = own.of_table(table)
                rows = table if overlap == "all" else table.filter(batch_filter(table, batches or ()))
                if rows.num_rows:
                    yield rows.unify_dictionaries().combine_chunks() if texts else rows.combine_chunks()


def _with_origins(rows: pa.Table, origins: Origins, first: int, names: Sequence[str]) -> pa.Table:
    """The rows with columns of their origins, from those of the file. `first`: the first row's number."""
    found = origins.of_rows(first, first + rows.num_rows)
    columns = dict(zip((FILE_OF_ROW, ROW_IN_FILE), found, strict=True))
    for name in names:
        rows = rows.append_column(name, arrow_array(columns[name]))
    return rows


def read_named(store: Store, file: SealedFile, group: int, columns: Sequence[str]) -> pa.Table:
    """As `read_columns`, but by the names that users see."""
    names = store.column_names
    return names.of_table(read_columns(file, group, names.stored_of(columns), names.private))


def read_columns(
    file: SealedFile, group: int, columns: Sequence[str], private: Collection[str] = ()
) -> pa.Table:
    """Columns of a row group of `events`, by their stored names; missing columns are NULL, of type null.

    ValueError if it lacks a column of tidemark's own, or one that was written. `columns` has one of these.
    DamagedWarehouse if it lacks a private column: then it has tokens of another secret (before or after a
    rotation).
    """
    rows = file.read_group(group, columns)
    for name in columns:
        if name in rows.column_names:
            continue
        if name in _OWN_COLUMNS:
            raise ValueError(f"it lacks the column {name!r}")
        if name in private:
            raise DamagedWarehouse(
                f"a file of {EVENTS} lacks the private column {name!r}: the secret was rotated meanwhile. "
                "Run it again."
            )
        rows = rows.append_column(name, pa.nulls(rows.num_rows))
    return rows


def rows_by_batch(store: Store, table: DeltaTable, batches: BatchRange) -> Counter[int]:
    """The number of rows in `events` by batch; batches without rows are absent."""
    counts, others = stated_rows(files_of_batches(table, [batches]), [batches])
    counts += count_rows(store, map(EventRowGroups.whole_file, others), [batches])
    return Counter({batch: rows for (_, batch), rows in counts.items()})


def stated_rows(
    files: Iterable[DataFile], batches: Sequence[BatchRange]
) -> tuple[Counter[tuple[str, int]], list[DataFile]]:
    """The rows by (source, batch) in files whose statistics show a single batch; and the other files."""
    counts: Counter[tuple[str, int]] = Counter()
    others: list[DataFile] = []
    ranges: dict[str, list[BatchRange]] = {}
    for one in batches:
        ranges.setdefault(one.source, []).append(one)
    for file in files:
        only = only_batch(file)
        if only is None or only[0] not in ranges:  # long text is truncated in statistics
            others.append(file)
        elif any(one.holds(*only) for one in ranges[only[0]]):
            counts[only] += file.rows
    return counts, others


def only_batch(file: DataFile) -> tuple[str, int] | None:
    """The source and number of the one batch of the file, by its statistics; None if they do not tell it."""
    least, most = (
        tuple(file.stats.get(f"{end}.{name}") for name in ("_source", "_batch")) for end in ("min", "max")
    )
    source, number = least
    if file.rows < 0 or least != most or source is None or number is None:
        return None
    return source, number


def count_rows(
    store: Store, shares: Iterable[EventRowGroups], batches: Sequence[BatchRange] | None = None
) -> Counter[tuple[str, int]]:
    """The number of rows in the shares by (source, batch), for the given batches or all; reads every row."""
    names = ["_source", "_batch"]
    counts: Counter[tuple[str, int]] = Counter()
    for rows in read_event_rows(replace(store, names=ColumnNames()), shares, names, batches):
        for group in rows.group_by(names).aggregate([([], "count_all")]).to_pylist():
            counts[group["_source"], group["_batch"]] += group["count_all"]
    return counts


def group_overlap(
    group: pq.RowGroupMetaData, batches: Sequence[BatchRange]
) -> Literal["all", "some", "none"]:
    """Whether all, some or none of a row group's rows belong to the batches; "some" if that is unknown.

    Parquet's statistics, unlike Delta's, do not truncate text. Most row groups have a single batch, and then
    the columns `_source` and `_batch` need not be read.
    """
    source_bounds, number_bounds = (_column_bounds(group, name) for name in ("_source", "_batch"))
    if source_bounds is None or number_bounds is None:
        return "some"
    low_source, high_source = source_bounds
    low, high = number_bounds
    candidates = [
        wanted
        for wanted in batches
        if low_source <= wanted.source <= high_source and low <= wanted.last and wanted.first <= high
    ]
    if not candidates:
        return "none"
    covered = any(wanted.first <= low and high <= wanted.last for wanted in candidates)
    return "all" if low_source == high_source and covered else "some"


def batch_of_group(group: pq.RowGroupMetaData) -> tuple[str, int] | None:
    """The source and number of the one batch of a row group; None if it may have several."""
    source, number = (_column_bounds(group, name) for name in ("_source", "_batch"))
    if source is None or number is None or source[0] != source[1] or number[0] != number[1]:
        return None
    return source[0], number[0]


def _column_bounds(group: pq.RowGroupMetaData, name: str) -> tuple[Any, Any] | None:
    """The minimum and maximum of a column without NULL; None if the statistics do not give them."""
    chunks = map(group.column, range(group.num_columns))
    column = next((chunk for chunk in chunks if chunk.path_in_schema == name), None)
    stats = column.statistics if column is not None else None
    if stats is None or not stats.has_min_max or not stats.has_null_count or stats.null_count:
        return None
    return stats.min, stats.max


def decode_rows(
    rows: pa.Table,
    measures: Sequence[Measure],
    keys: Sequence[Key],
    companions: Companions | None = None,
) -> DecodedRows:
    """The ticks, measures, keys and columns of companions of rows of `events`."""
    columns = tuple(encode_values(measure, single_array(rows.column(measure.name))) for measure in measures)
    return DecodedRows(
        as_numpy(rows.column("_tick")),
        columns,
        tuple(key.encode(rows) for key in keys),
        companions.rows_of(rows) if companions else (),
    )


def batch_filter(table: pa.Table, batches: Sequence[BatchRange]) -> pa.ChunkedArray:
    """For each row, whether it belongs to one of the batches; all False without batches."""
    source, number = table.column("_source"), table.column("_batch")
    mask = None
    for wanted in batches:
        in_range = pc.and_(
            pc.equal(source, text(wanted.source)),
            pc.and_(
                pc.greater_equal(number, integer(wanted.first)), pc.less_equal(number, integer(wanted.last))
            ),
        )
        mask = in_range if mask is None else pc.or_(mask, in_range)
    return mask if mask is not None else pc.less(number, number)
