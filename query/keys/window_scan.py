"""Aggregates over all keys of several windows (`every`): one scan of their rows for all windows.

The rows are summed by key and window on first use: in arrays where a sort of the rows of `events` counts them
(`KeyQuestion.counted`), else by DuckDB as in key_scan.py. Each aggregate is then found for all windows at
once. Windows are whole ticks, so nothing is uncertain. Cost: a scan of all blocks of the runs that have rows
in any window, or of these rows in `events`, however many windows there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tidemark.query.answers.key_answers import KeyValues
from tidemark.query.keys.key_relation import KeyDatabase, WindowRows, database, stored_names
from tidemark.query.keys.key_scan import MOST_ROWS, CountedNames
from tidemark.query.keys.scanned_parts import ScannedKey
from tidemark.query.keys.window_counts import KeysInWindows, WindowCounts
from tidemark.query.reading import spending
from tidemark.query.reading.sql_text import with_most
from tidemark.warehouse.columns.keys import Key, take_names
from tidemark.warehouse.columns.tick_counts import disjoint_windows, window_codes
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.columns.value_encoding import as_numpy

if TYPE_CHECKING:
    from tidemark.query.keys.key_question import KeyQuestion

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

    question: about a range of ticks that has all windows; it knows the rows, and the cost of a scan.
    windows: ascending. If they overlap, keys are counted between all of their ends first.
    """

    def __init__(self, question: KeyQuestion, windows: Sequence[Window]) -> None:
        self._question, self.windows, self._opened = question, windows, ExitStack()
        self._history = question.history(question.window.overlapping)
        self._tops: dict[int, list[CountedNames]] = {}

    def close(self) -> None:
        """Frees the memory and the temporary files."""
        self._opened.close()

    @property
    def stored_rows(self) -> int:
        """See `WindowRows.stored_rows`."""
        return self._history.rows if self._counted is not None else self._rows.stored_rows

    @property
    def is_quick(self) -> bool:
        """Whether it takes less time than to ask the marks' lists about each window.

        In an object store a scan waits for more requests.
        """
        source = self._question.source
        lists = source.costs.lists(len(self.windows))
        return not source.is_far and source.scan_cost(self._history) <= lists

    def top(self, part: int, k: int) -> CountedNames:
        """The k names with the most rows in the window with this number; one look for all windows."""
        if k not in self._tops:
            kept = min(k, MOST_ROWS)
            found = self._named(self._found.most(kept + 1, by_name=True))
            self._tops[k] = [one.first(kept) for one in found]
        return self._tops[k][part]

    def tops(self, k: int, key: Key) -> list[list[ScannedKey]]:
        """The k keys with the most rows in each window, most rows first, of equal ones the first.

        key: has its columns in the order in which values have them.
        """
        most = self._found.most(min(k, MOST_ROWS))
        values = KeyValues(key, most.names)
        found = list(map(ScannedKey, values, most.history.tolist(), most.live.tolist()))
        return [found[start:stop] for start, stop in self._ranges(most)]

    def names_with(self, part: int, least: int) -> CountedNames:
        """The names with at least `least` rows in the window with this number."""
        return self._named(self._found.names_with(part, least))[part]

    @cached_property
    def second_moments(self) -> dict[int, int]:
        """The sum over all keys of the square of their rows, by the number of the window; 0 is left out."""
        return self._found.second_moments()

    @cached_property
    def keys(self) -> dict[int, int]:
        """The number of keys, by the number of the window; 0 is left out."""
        return self._found.keys()

    @cached_property
    def new_keys(self) -> dict[int, int]:
        """The number of keys that no window before has; 0 is left out."""
        return self._found.new_keys()

    def _named(self, found: KeysInWindows) -> list[CountedNames]:
        """The names that were found in each window; those of a window ascend."""
        parts = []
        for start, stop in self._ranges(found):
            names = take_names(found.names, np.arange(start, stop))
            parts.append(CountedNames.certain(names, found.history[start:stop], found.live[start:stop]))
        return parts

    def _ranges(self, found: KeysInWindows) -> list[tuple[int, int]]:
        """Where the keys of each window are."""
        edges: list[int] = found.part.searchsorted(np.arange(len(self.windows) + 1)).tolist()
        return list(pairwise(edges))

    @cached_property
    def _found(self) -> WindowCounts:
        if self._counted is not None:
            spending.scans_keys()
            return self._counted
        return _Tables(self._opened.enter_context(database(self._rows)), self._rows, self.windows)

    @cached_property
    def _counted(self) -> WindowCounts | None:
        return self._question.counted(self.windows)

    @cached_property
    def _rows(self) -> WindowRows:
        return self._question.rows()


class _Tables:
    """As `WindowCounts`, by DuckDB, which reads the rows now."""

    def __init__(self, opened: KeyDatabase, rows: WindowRows, windows: Sequence[Window]) -> None:
        self._opened, self._key, self._windows = opened, rows.key, len(windows)
        if len(disjoint_windows(windows)) <= 1:
            relation = opened.relation(rows, partial(window_codes, windows=windows))
            opened.keep("found", _SUMS.format(*rows.sums(), relation))
            return
        ends = sorted({end for window in windows for end in (window.start, window.stop)})
        pieces = [Window(start, stop) for start, stop in pairwise(ends)]
        relation = opened.relation(rows, partial(window_codes, windows=pieces))
        opened.keep("pieces", _SUMS.format(*rows.sums(), relation))
        places = {end: place for place, end in enumerate(ends)}
        spans = (f"({i}, {places[one.start]}, {places[one.stop]})" for i, one in enumerate(windows))
        opened.keep("found", _SPREAD.format(", ".join(spans)))

    def most(self, k: int, *, by_name: bool = False) -> KeysInWindows:
        """See `WindowCounts.most`."""
        ranked = _RANKED.format(with_most("found", k, "part", "rows", self._windows))
        order = "name" if by_name else "place"
        return self._keys(f"FROM ({ranked}) WHERE place <= {k} ORDER BY part, {order}")

    def names_with(self, part: int, least: int) -> KeysInWindows:
        """See `WindowCounts.names_with`."""
        return self._keys(f"FROM found WHERE part = {part} AND rows >= {least} ORDER BY part, name")

    def second_moments(self) -> dict[int, int]:
        """See `WindowCounts.second_moments`."""
        return self._numbers(_SQUARES)

    def keys(self) -> dict[int, int]:
        """See `WindowCounts.keys`."""
        return self._numbers(_KEYS)

    def new_keys(self) -> dict[int, int]:
        """See `WindowCounts.new_keys`."""
        return self._numbers(_NEW_KEYS)

    def _keys(self, selected: str) -> KeysInWindows:
        """Rows of `found`, by window."""
        table = self._opened.columns(f"SELECT part, name, history, live {selected}")
        part, history, live = (as_numpy(table.column(name)) for name in ("part", "history", "live"))
        return KeysInWindows(part, stored_names(self._key, table), history, live)

    def _numbers(self, statement: str) -> dict[int, int]:
        return {part: int(number) for part, number in self._opened.rows(statement)}


class ScannedWindow(NamedTuple):
    """One window of a scan. part: its number among the windows of the scan."""

    scan: WindowScan
    part: int
