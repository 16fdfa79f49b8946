"""The projection of the key: rows (key, tick, count), ascending by key, then tick; each pair once.

A block is bounded in rows and in the bytes of its distinct keys. Texts are a dictionary a block: a key of
many ticks is stored once there, read once, and compared once. Statistics are exact; doubles have none in
Parquet, which would leave NaN out of them and so lose rows of a filter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.warehouse.columns.keys import (
    Key,
    as_names,
    encode_keys,
    name_sizes,
    names_of,
    stored_keys,
    take_names,
)
from tidemark.warehouse.columns.measures import as_numpy, single_array
from tidemark.warehouse.columns.tick_counts import TickCounts
from tidemark.warehouse.delta.store import KEY_MARKS, KEYS
from tidemark.warehouse.integrity.digests import ColumnsByName, hash_sum, text_hashes
from tidemark.warehouse.integrity.sealed_files import SealedFile
from tidemark.warehouse.projections import key_marks
from tidemark.warehouse.projections.key_marks import KeyMarks
from tidemark.warehouse.projections.key_marks_writer import KeyMarkCollector
from tidemark.warehouse.projections.key_rows import (
    KeyRows,
    count_pairs,
    no_rows,
    sorted_rows,
    sum_counts,
    tick_totals,
)
from tidemark.warehouse.projections.key_run_checks import KeyChecker, ascends
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.runs.projection import MarkedFile, Projection, ReopenMarks, RunSpec
from tidemark.warehouse.sizes import DEFAULT, Tuning

# Rows of a block are by default a quarter of a value run's, as a key has three columns and text is slow to
# read; they grow to four times that once a run would have more marks than these.
MARKS = 2**14


def block_rows(rows: int, least: int) -> int:
    """Rows of a block of a run of so many, `least` at least."""
    return min(4 * least, max(least, rows // MARKS))


@dataclass(frozen=True, slots=True)
class KeyCounts(Projection[KeyRows]):
    """The rows of each key and tick, sorted."""

    key: Key
    tuning: Tuning = field(default=DEFAULT, compare=False)

    name = "keys"
    order = ("key", "tick")
    merges_equal = True
    runs_table = KEYS
    marks_table = KEY_MARKS

    @property
    def title(self) -> str:
        """What reports call it."""
        return f"key {self.key.name}"

    @property
    def type(self) -> str:
        """The key's type."""
        return self.key.type

    @property
    def runs_schema(self) -> pa.Schema:
        """The key, the tick, the count of rows, and the run."""
        longs = [(name, pa.int64()) for name in ("tick", "count")]
        return pa.schema([("key", self.key.stored_type), *longs, ("run", pa.string())])

    @property
    def marks_schema(self) -> pa.Schema:
        """As keymarks.py says."""
        return key_marks.schema(self.key)

    @property
    def min_block_cost(self) -> int:
        """As blocks are bounded in bytes, too, one of few rows may be as much work as a full one."""
        return self.tuning.key_block_rows

    @property
    def columns(self) -> tuple[str, ...]:
        """The key's column."""
        return (self.key.name,)

    @property
    def texts(self) -> tuple[str, ...]:
        """The key's column, where it is text or bytes."""
        return self.columns if self.key.is_text else ()

    def decode(self, events: pa.Table) -> tuple[KeyRows, TickCounts]:
        """The rows that have a key, counted; and all rows by tick, with a key and without."""
        ticks = as_numpy(events.column("_tick"))
        column = encode_keys(self.key, single_array(events.column(self.key.name)))
        return count_pairs(column, ticks), tick_totals(column, ticks)

    def sort(self, parts: Sequence[KeyRows]) -> KeyRows:
        """The counts of all parts together."""
        return self.merge(parts)

    def merge(self, parts: Sequence[KeyRows]) -> KeyRows:
        """The counts of all parts together."""
        return sum_counts([no_rows(self.key), *parts] if len(parts) != 1 else parts)

    def blocks(self, pieces: Iterator[KeyRows], shape: RunSpec | None) -> Iterator[tuple[KeyRows, list[int]]]:
        """Blocks end with their piece."""
        least = self.tuning.key_block_rows
        most = least if shape is None else block_rows(shape.rows, least)
        for rows in pieces:
            if len(rows):
                yield rows, _block_edges(rows, most, self.tuning.key_block_bytes)

    def to_stored(self, rows: KeyRows) -> pa.Table:
        """The columns key, tick and count."""
        if self.key.is_text:
            codes = pa.array(rows.codes.astype(np.int32))
            keys = pa.DictionaryArray.from_arrays(codes, stored_keys(self.key, rows.names))
        else:
            keys = stored_keys(self.key, take_names(rows.names, rows.codes))
        return pa.table([keys, pa.array(rows.ticks), pa.array(rows.counts)], names=["key", "tick", "count"])

    def from_stored(self, stored: ColumnsByName) -> list[KeyRows]:
        """The rows, a part for each dictionary that they have."""
        keys, ticks, counts = stored["key"], stored["tick"], stored["count"]
        if not self.key.is_text:
            return [sorted_rows(names_of(self.key, keys), ticks, counts)]
        parts, start = [], 0
        for chunk in keys.chunks:
            stop = start + len(chunk)
            if len(chunk):
                codes = as_numpy(chunk.indices).astype(np.int64)
                names = as_names(chunk.dictionary)[int(codes[0]) : int(codes[-1]) + 1]
                parts.append(KeyRows(names, codes - codes[0], ticks[start:stop], counts[start:stop]))
            start = stop
        return parts

    @property
    def dictionaries(self) -> tuple[str, ...]:
        """The key, where it is text or bytes."""
        return ("key",) if self.key.is_text else ()

    @property
    def encoding(self) -> Mapping[str, Any]:
        """Texts are dictionaries, integers packed."""
        # A block bounds its dictionary; without one a long key would be there once a tick.
        common: dict[str, Any] = {"dictionary_pagesize_limit": 2**30}
        if self.key.is_text:
            return {**common, "use_dictionary": ["key", "tick", "count"]}
        plain = {**common, "use_dictionary": ["tick", "count"]}
        if self.key.is_double:
            return {**plain, "write_statistics": ["tick", "count"]}
        return {**plain, "column_encoding": {"key": "DELTA_BINARY_PACKED"}}

    def collector(self, shape: RunSpec | None) -> KeyMarkCollector:
        """A mark a block; of a run also what is heavy."""
        return KeyMarkCollector(self.key, None if shape is None else shape.totals)

    def marks_tables(self, files: Sequence[MarkedFile], totals: TickCounts) -> Mapping[str, pa.Table]:
        """The header, the marks, and what is heavy."""
        return key_marks.to_arrow(self.key, files, totals)

    def read_marks(self, run: Run, file: SealedFile, later: ReopenMarks) -> KeyMarks:
        """The marks; what is heavy is read when it is asked for."""
        return key_marks.read(self.key, run, file, later)

    def ascends(self, rows: KeyRows) -> bool:
        """Whether the pairs are in order and apart, each with a count."""
        return ascends(rows)

    def checker(self, marks: KeyMarks) -> KeyChecker:
        """Compares the marks, and what they list as heavy, with the rows."""
        return KeyChecker(self.key, marks)

    def digest(self, rows: KeyRows) -> int:
        """The sum of mixed bits of (key, tick), each times its count."""
        names = rows.names
        words = names.view(np.uint64) if isinstance(names, np.ndarray) else text_hashes(names)
        return hash_sum(words[rows.codes], rows.ticks, rows.counts)


def _block_edges(rows: KeyRows, most: int, most_bytes: int) -> list[int]:
    """Where blocks begin, and the end: none has more rows, nor, beside one key, more bytes of keys."""
    edges = [0]
    held = np.concatenate([[0], np.cumsum(name_sizes(rows.names))])
    while edges[-1] < len(rows):
        start = edges[-1]
        first = int(rows.codes[start])
        names = max(1, int(np.searchsorted(held, held[first] + most_bytes, side="right")) - 1 - first)
        stop = int(np.searchsorted(rows.codes, first + names))
        edges.append(min(start + most, stop, len(rows)))
    return edges
