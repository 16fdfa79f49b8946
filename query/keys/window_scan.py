"""Aggregates over all keys of several windows (`every`): one scan of the blocks and live rows for all.

The rows are summed by key and window, by DuckDB as in key_scan.py, on first use. Each aggregate is then one
query for all windows. Windows are whole ticks, so nothing is uncertain. Cost: a scan of all blocks of the
runs that have rows in any window, however many windows there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise

import numpy as np

from tidemark.query.answers.key_answers import KeyValues
from tidemark.query.keys.key_relation import KeyDatabase, WindowRows, database, stored_names
from tidemark.query.keys.key_scan import MOST_ROWS, CountedNames
from tidemark.query.keys.key_source import KeySource
from tidemark.query.keys.scanned_parts import ScannedKey
from tidemark.query.reading.sql_text import with_most
from tidemark.warehouse.columns.keys import Key, take_names
from tidemark.warehouse.columns.tick_counts import disjoint_windows, window_codes
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.columns.value_encoding import as_numpy

_SUMS = """
SELECT *, history + live AS rows FROM (
    SELECT name, code AS part, {} AS history, {} AS live FROM {} GROUP BY name, code
) WHERE history + live > 0
"""
_SPREAD = """
SELECT name, spans.part AS part, sum(history)::BIGINT AS history, sum(live)::BIGINT AS live,
    sum(rows)::BIGINT AS rows
FROM pieces JOIN (
    SELECT part, unnest(range(first, stop)) AS piece FROM (VALUES {}) AS windows(part, first, stop)
) AS spans ON pieces.part = spans.piece
GROUP BY name, spans.part
"""
_SQUARES = "SELECT part, sum(rows::HUGEINT * rows) FROM found GROUP BY part"
_KEYS = "SELECT part, count(*) FROM found GROUP BY part"
_NEW_KEYS = "SELECT part, count(*) FROM (SELECT min(part) AS part FROM found GROUP BY name) GROUP BY part"
_RANKED = "SELECT *, row_number() OVER (PARTITION BY part ORDER BY rows DESC, name) AS place FROM {}"


class WindowScan:
    """The rows of each key in each of several windows. `close` ends it.

    rows: the rows of a range of ticks that has all windows.
    windows: ascending. If they overlap, keys are counted between all of their ends first.
    source: it knows the cost of a scan.
    """

    def __init__(self, rows: WindowRows, windows: Sequence[Window], source: KeySource) -> None:
        self._rows, self.windows, self._source, self._opened = rows, windows, source, ExitStack()
        self._tops: dict[int, list[CountedNames]] = {}

    def close(self) -> None:
        """Frees the memory and the temporary files."""
        self._opened.close()

    @property
    def stored_rows(self) -> int:
        """See `WindowRows.stored_rows`."""
        return self._rows.stored_rows

    @property
    def is_quick(self) -> bool:
        """See `ScannedWindow.is_quick`; in an object store a scan waits for more requests."""
        source, lists = self._source, self._source.costs.lists(len(self.windows))
        return not source.is_far and source.scan_cost(self._rows.history) <= lists

    def top(self, part: int, k: int) -> CountedNames:
        """The k names with the most rows in the window with this number; one query for all windows."""
        if k not in self._tops:
            kept = min(k, MOST_ROWS)
            found = self._names(f"{self._ranked(kept + 1)} ORDER BY part, name")
            self._tops[k] = [one.first(kept) for one in found]
        return self._tops[k][part]

    def tops(self, k: int, key: Key) -> list[list[ScannedKey]]:
        """The k keys with the most rows in each window, most rows first, of equal ones the first.

        key: has its columns in the order in which values have them.
        """
        ranked = self._ranked(min(k, MOST_ROWS))
        table = self._found.columns(f"SELECT part, name, history, live {ranked} ORDER BY part, place")
        part, history, live = (as_numpy(table.column(name)) for name in ("part", "history", "live"))
        values = KeyValues(key, stored_names(self._rows.key, table))
        found = list(map(ScannedKey, values, history.tolist(), live.tolist()))
        edges = part.searchsorted(np.arange(len(self.windows) + 1)).tolist()
        return [found[start:stop] for start, stop in pairwise(edges)]

    def _ranked(self, k: int) -> str:
        """SQL of the k names with the most rows in each window, with their places from 1."""
        ranked = _RANKED.format(with_most("found", k, "part", "rows", len(self.windows)))
        return f"FROM ({ranked}) WHERE place <= {k}"

    def names_with(self, part: int, least: int) -> CountedNames:
        """The names with at least `least` rows in the window with this number."""
        condition = f"part = {part} AND rows >= {least}"
        return self._names(f"FROM found WHERE {condition} ORDER BY part, name")[part]

    def _names(self, selected: str) -> list[CountedNames]:
        """The names of rows of `found`, for each window."""
        table = self._found.columns(f"SELECT part, name, history, live {selected}")
        part, history, live = (as_numpy(table.column(name)) for name in ("part", "history", "live"))
        names, zeros = stored_names(self._rows.key, table), np.zeros(len(table), np.int64)
        edges = part.searchsorted(np.arange(len(self.windows) + 1)).tolist()
        return [
            CountedNames(
                take_names(names, np.arange(start, stop)),
                history[start:stop],
                zeros[start:stop].astype(np.float64),
                zeros[start:stop],
                live[start:stop],
                0,
            )
            for start, stop in pairwise(edges)
        ]

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
        return {part: int(number) for part, number in self._found.rows(statement)}

    @cached_property
    def _found(self) -> KeyDatabase:
        opened = self._opened.enter_context(database(self._rows))
        if len(disjoint_windows(self.windows)) <= 1:
            relation = opened.relation(self._rows, partial(window_codes, windows=self.windows))
            opened.keep("found", _SUMS.format(*self._rows.sums(), relation))
            return opened
        ends = sorted({end for window in self.windows for end in (window.start, window.stop)})
        pieces = [Window(start, stop) for start, stop in pairwise(ends)]
        relation = opened.relation(self._rows, partial(window_codes, windows=pieces))
        opened.keep("pieces", _SUMS.format(*self._rows.sums(), relation))
        places = {end: place for place, end in enumerate(ends)}
        spans = (f"({i}, {places[one.start]}, {places[one.stop]})" for i, one in enumerate(self.windows))
        opened.keep("found", _SPREAD.format(", ".join(spans)))
        return opened


@dataclass(frozen=True, slots=True, eq=False)
class ScannedWindow:
    """One window of a scan."""

    scan: WindowScan
    part: int

    @property
    def is_quick(self) -> bool:
        """Whether the scan takes less time than to ask the marks' lists about each window."""
        return self.scan.is_quick

    @property
    def together(self) -> int:
        """The number of windows that share the scan."""
        return len(self.scan.windows)

    def top(self, k: int) -> CountedNames:
        """See `WindowScan.top`."""
        return self.scan.top(self.part, k)

    def names_with(self, least: int) -> CountedNames:
        """See `WindowScan.names_with`."""
        return self.scan.names_with(self.part, least)

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
