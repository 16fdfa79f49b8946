"""The projection of a key: rows (key, tick, count), ascending by key, then tick; each pair once.

A block is bounded in rows and in the bytes of its distinct keys. Text keys have one dictionary in each block:
a key with many ticks is stored, read and compared once. Statistics are exact. Double keys have none in
Parquet: it ignores NaN in statistics, so a filter could lose rows.
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
    name_sizes,
    names_of,
    stored_keys,
    take_names,
)
from tidemark.warehouse.columns.tick_counts import TickCounts, count_by_tick
from tidemark.warehouse.columns.value_encoding import as_numpy
from tidemark.warehouse.delta.table_names import KEYS, group_folder
from tidemark.warehouse.integrity.digests import ColumnsByName, hash_sum, name_words
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
)
from tidemark.warehouse.projections.key_run_checks import KeyChecker, ascends
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.runs.marks import MarksFile
from tidemark.warehouse.runs.projection import MarkedFile, Projection, RunSpec
from tidemark.warehouse.runs.run_files import bounded_block_edges
from tidemark.warehouse.sizes import DEFAULT, Tuning

# By default a block has a quarter of the rows of a measure's block, because it has three columns and text is
# slow to read. If a run would have more marks than this, its blocks grow to at most four times that size.
PREFERRED_MARKS = 2**14


def choose_block_rows(rows: int, min_rows: int) -> int:
    """The maximum rows of a block in a run of `rows` rows: `min_rows` to 4 * `min_rows`."""
    return min(4 * min_rows, max(min_rows, rows // PREFERRED_MARKS))


@dataclass(frozen=True, slots=True)
class KeyCounts(Projection[KeyRows]):
    """The number of rows of each key and tick, sorted.

    ticks_a_day: how many ticks a day has; None where they do not divide it, and without a time column.
    """

    key: Key
    tuning: Tuning = field(default=DEFAULT, compare=False)
    ticks_a_day: int | None = None

    order = ("key", "tick")
    merges_equal = True

    @property
    def name(self) -> str:
        """``keys of`` its columns."""
        return f"keys of {self.key.name}"

    @property
    def runs_table(self) -> str:
        """``keys/<columns>``."""
        return f"{KEYS}/{group_folder(self.key.stored_names)}"

    @property
    def ledger_field(self) -> str:
        """The field of the ledger's column `keys` that has the key's summary."""
        return group_folder(self.key.stored_names)

    @property
    def title(self) -> str:
        """The name in reports."""
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
        """The columns that key_marks.py defines."""
        return key_marks.schema(self.key)

    @property
    def min_block_cost(self) -> int:
        """Blocks are also bounded in bytes, so a block with few rows may cost as much as a full one."""
        return self.tuning.key_block_rows

    @property
    def columns(self) -> tuple[str, ...]:
        """The key's columns."""
        return self.key.columns

    @property
    def texts(self) -> tuple[str, ...]:
        """Those of the key's columns that are text or binary."""
        return self.key.texts

    def decode(self, events: pa.Table) -> tuple[KeyRows, TickCounts]:
        """Counts the rows with a key by (key, tick), and all rows by tick."""
        ticks = as_numpy(events.column("_tick"))
        column = self.key.encode(events)
        return count_pairs(column, ticks), count_by_tick(ticks, column.null)

    def sort(self, parts: Sequence[KeyRows]) -> KeyRows:
        """Sums the counts of equal pairs in all parts."""
        return self.merge(parts)

    def merge(self, parts: Sequence[KeyRows]) -> KeyRows:
        """Sums the counts of equal pairs in all parts."""
        return sum_counts([no_rows(self.key), *parts] if len(parts) != 1 else parts)

    def blocks(
        self, pieces: Iterator[KeyRows], run_spec: RunSpec | None
    ) -> Iterator[tuple[KeyRows, list[int]]]:
        """Blocks of bounded rows and bytes; no block has rows of two pieces."""
        min_rows = self.tuning.key_block_rows
        max_rows = min_rows if run_spec is None else choose_block_rows(run_spec.rows, min_rows)
        for rows in pieces:
            if len(rows):
                edges = bounded_block_edges(
                    rows.codes, name_sizes(rows.names), max_rows, self.tuning.key_block_bytes
                )
                yield rows, edges

    def to_stored(self, rows: KeyRows) -> pa.Table:
        """The columns key, tick and count."""
        if self.key.is_text:
            codes = pa.array(rows.codes.astype(np.int32))
            keys = pa.DictionaryArray.from_arrays(codes, stored_keys(self.key, rows.names))
        else:
            keys = stored_keys(self.key, take_names(rows.names, rows.codes))
        return pa.table([keys, pa.array(rows.ticks), pa.array(rows.counts)], names=["key", "tick", "count"])

    def from_stored(self, stored: ColumnsByName) -> list[KeyRows]:
        """The rows in parts, one for each dictionary; numeric keys have one part."""
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
        """The key, if it is text or binary."""
        return ("key",) if self.key.is_text else ()

    @property
    def encoding(self) -> Mapping[str, Any]:
        """Dictionaries for ticks, counts and text keys; DELTA_BINARY_PACKED for integer keys."""
        # A block limits its dictionary. Without a dictionary a long key would be stored once for each tick.
        common: dict[str, Any] = {"dictionary_pagesize_limit": 2**30}
        if self.key.is_text:
            return {**common, "use_dictionary": ["key", "tick", "count"]}
        plain = {**common, "use_dictionary": ["tick", "count"]}
        if self.key.is_double:
            return {**plain, "write_statistics": ["tick", "count"]}
        return {**plain, "column_encoding": {"key": "DELTA_BINARY_PACKED"}}

    def collector(self, run_spec: RunSpec | None) -> KeyMarkCollector:
        """Collects a mark for each block; for a run also the heavy and the distinct keys."""
        totals = None if run_spec is None else run_spec.totals
        return KeyMarkCollector(self.key, totals, self.ticks_a_day)

    def marks_tables(self, files: Sequence[MarkedFile], totals: TickCounts) -> Mapping[str, pa.Table]:
        """The header, the marks, the heavy keys and the distinct keys."""
        return key_marks.to_arrow(self.key, files, totals, self.ticks_a_day)

    def read_marks(self, run: Run, file: SealedFile, source: MarksFile) -> KeyMarks:
        """Reads the marks; their `heavy` and `distinct` read the heavy and the distinct keys on demand."""
        return key_marks.read(self.key, run, file, source)

    def ascends(self, rows: KeyRows) -> bool:
        """Whether the pairs are distinct and ascend, and all counts are positive."""
        return ascends(rows)

    def checker(self, marks: KeyMarks) -> KeyChecker:
        """Returns a checker of the marks, the heavy keys and the distinct keys."""
        return KeyChecker(self.key, marks, self.ticks_a_day)

    def digest(self, rows: KeyRows) -> int:
        """The sum of the hashes of (key, tick), each times its count, modulo 2**64."""
        return hash_sum(name_words(rows.names)[rows.codes], rows.ticks, rows.counts)
