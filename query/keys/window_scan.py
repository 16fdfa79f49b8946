"""Aggregates over all keys of several windows (`every`): one scan of the blocks and live rows for all.

The rows are summed by key and window, by DuckDB as in key_scan.py, on first use. Each aggregate is then one
query for all windows. Windows are whole ticks, so nothing is uncertain. Cost: a scan of all blocks of the
runs that have rows in any window, however many windows there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.query.keys.key_scan import (
    WindowRows,
    create_table,
    database,
    name_type,
    stored_names,
    stored_rows,
)
from tidemark.warehouse.columns.arrow_buffers import arrow_array
from tidemark.warehouse.columns.keys import Names, take_names
from tidemark.warehouse.columns.tick_counts import window_codes
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.columns.value_encoding import as_numpy
from tidemark.warehouse.projections.key_rows import KeyRows

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Ints = NDArray[np.int64]

_SUMS = """
SELECT name, part, sum(history)::BIGINT AS history, sum(live)::BIGINT AS live,
    sum(read.history + read.live)::HUGEINT AS rows
FROM read GROUP BY name, part ORDER BY part, name
"""
_SQUARES = "SELECT part, sum(rows * rows) FROM found GROUP BY part"
_KEYS = "SELECT part, count(*) FROM found GROUP BY part"
_NEW_KEYS = "SELECT part, count(*) FROM (SELECT min(part) AS part FROM found GROUP BY name) GROUP BY part"


class WindowScan:
    """The rows of each key in each of several windows. `close` ends it.

    rows: of a range of ticks that has all windows.
    windows: ascending, and they do not overlap.
    """

    def __init__(self, rows: WindowRows, windows: Sequence[Window]) -> None:
        self._rows, self.windows, self._opened = rows, windows, ExitStack()

    def close(self) -> None:
        """Frees the memory and the temporary files."""
        self._opened.close()

    def names(self, part: int) -> tuple[Names, Ints, Ints]:
        """The names with rows in the window with this number, ascending; their rows in history and live."""
        statement = "SELECT name, history, live FROM found WHERE part = ? ORDER BY name"
        found = self._found.sql(statement, params=[part]).to_arrow_table().combine_chunks()
        names = stored_names(self._rows.key, found)
        return names, as_numpy(found.column("history")), as_numpy(found.column("live"))

    @cached_property
    def second_moments(self) -> dict[int, int]:
        """The sum over all keys of the square of their rows, by the number of the window; 0 is left out."""
        return self._numbers(_SQUARES)

    @cached_property
    def keys(self) -> dict[int, int]:
        """The number of keys, by the number of the window; 0 is left out."""
        return self._numbers(_KEYS)

    @cached_property
    def new_keys(self) -> dict[int, int]:
        """The number of keys that no window before has; 0 is left out."""
        return self._numbers(_NEW_KEYS)

    def _numbers(self, statement: str) -> dict[int, int]:
        return {part: int(number) for part, number in self._found.execute(statement).fetchall()}

    @cached_property
    def _found(self) -> DuckDBPyConnection:
        connection = self._opened.enter_context(database())
        longs = [(name, pa.int64()) for name in ("part", "history", "live")]
        schema = pa.schema([("name", name_type(self._rows.key)), *longs])
        create_table(connection, "found", _SUMS, schema, self._batches(schema))
        return connection

    def _batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for history, _ in self._rows.histories:
            for rows in chain.from_iterable(stored_rows(history)):
                yield self._by_part(rows, schema, is_live=False)
        for rows in self._rows.live:
            yield self._by_part(rows, schema, is_live=True)

    def _by_part(self, rows: KeyRows, schema: pa.Schema, *, is_live: bool) -> pa.RecordBatch:
        """The rows in the windows, summed by name and window: rows ascend by name, then tick."""
        parts = window_codes(rows.ticks, self.windows)
        inside = np.flatnonzero(parts >= 0)
        codes, parts, counts = rows.codes[inside], parts[inside], rows.counts[inside]
        is_first = np.ones(len(inside), bool)
        is_first[1:] = (np.diff(codes) != 0) | (np.diff(parts) != 0)
        starts = np.flatnonzero(is_first)
        sums = np.add.reduceat(counts, starts) if len(starts) else counts
        names, zeros = take_names(rows.names, codes[starts]), np.zeros(len(starts), np.int64)
        numbers = [parts[starts], *((zeros, sums) if is_live else (sums, zeros))]
        column = arrow_array(names) if isinstance(names, np.ndarray) else names
        return pa.RecordBatch.from_arrays([column, *map(arrow_array, numbers)], schema=schema)


@dataclass(frozen=True, slots=True, eq=False)
class ScannedWindow:
    """One window of a scan."""

    scan: WindowScan
    part: int

    def names(self) -> tuple[Names, Ints, Ints]:
        """See `WindowScan.names`."""
        return self.scan.names(self.part)

    @property
    def second_moment(self) -> int:
        """The sum over all keys of the square of their rows."""
        return self.scan.second_moments.get(self.part, 0)

    @property
    def keys(self) -> int:
        """The number of keys."""
        return self.scan.keys.get(self.part, 0)

    @property
    def new_keys(self) -> int:
        """The number of keys that no window before has."""
        return self.scan.new_keys.get(self.part, 0)
