"""How often each key is there among the selected rows of `events`, by group and window, counted by DuckDB.

One statement counts the rows of each key in each group and window while it reads them (row_source.py). So
what is kept is a row for each of these, in memory or, beyond DuckDB's memory, on disk. All questions are
answered from there, exactly. Where single keys are not asked, a sort counts them if it can (sorted_pairs.py).
A row with NULL in a column of the key has no key, and is counted apart.

A *part* is a group in a window. Parts with rows are numbered from 0, ascending by group, then by window; keys
of a part are ordered as keys are, with NaN last.

Cost: one read of the columns that are used, in all files with rows of the windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.query.reading.connections import registered
from tidemark.query.reading.sql_text import quoted, with_most
from tidemark.query.scans.asked_rows import LIVE, key_name
from tidemark.query.scans.open_scan import OpenScan, Selected
from tidemark.query.scans.plain_files import FileReading
from tidemark.query.scans.sorted_pairs import count_pairs
from tidemark.warehouse.columns.arrow_buffers import arrow_array, arrow_table
from tidemark.warehouse.columns.codes import Ints
from tidemark.warehouse.columns.keys import Key, Names, name_at, names_from, names_of, stored_keys, take_names
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.columns.value_encoding import as_numpy, single_array
from tidemark.warehouse.snapshots.system_tables import AnyContents

_ROWS = "(history + live)"
MOST_KEYS = 2**62  # more than there are


@dataclass(frozen=True, slots=True, eq=False)
class KeyParts:
    """The parts that have rows; arrays of shape (parts,).

    group, window: the numbers of its group, which ascend, and of its window.
    n, m: rows of history and live rows that have a key. nulls: rows without one. keys: distinct keys.
    second_moments: the sum over all keys of the square of their rows; may be greater than 64 bits. Empty if
        they are not asked.
    """

    group: Ints
    window: Ints
    n: Ints
    m: Ints
    nulls: Ints
    keys: Ints
    second_moments: NDArray[np.object_]
    _by: tuple[Key, ...]
    _names: list[Names]  # of each part, by column of the group
    _first: Ints  # the first part of each group

    @property
    def groups(self) -> int:
        """How many groups there are; without columns of a group it is one."""
        return len(self._first)

    def values_of(self, groups: Ints) -> list[tuple[Any, ...]]:
        """The values of each of these groups, in the types of its columns."""
        first = self._first[groups]
        columns = [
            key.values_of(take_names(names, first)) for key, names in zip(self._by, self._names, strict=True)
        ]
        return list(zip(*columns, strict=True))

    def names(self, group: int) -> tuple[Any, ...]:
        """The names of the values of a group."""
        return tuple(name_at(names, int(self._first[group])) for names in self._names)


@dataclass(frozen=True, slots=True, eq=False)
class CountedKeys:
    """Some keys of parts, each with its rows; arrays of shape (keys,), ordered by part.

    part: the number of its part. history, live: its rows.
    """

    part: Ints
    history: Ints
    live: Ints
    _parts_of_key: tuple[Key, ...]
    _names: list[Names]

    def value(self, i: int) -> Any:
        """The value of the i-th key; a tuple for a key of several columns."""
        values = [
            key.value_of(name_at(names, i))
            for key, names in zip(self._parts_of_key, self._names, strict=True)
        ]
        return values[0] if len(values) == 1 else tuple(values)


class KeyScan(OpenScan):
    """A scan that counts the keys of rows. See `OpenScan`."""

    def __init__(
        self,
        contents: AnyContents,
        key: Key,
        windows: Sequence[Window],
        *,
        keeps_keys: bool = True,
        squares: bool = False,
        **selected: Unpack[Selected],
    ) -> None:
        """See `OpenScan`, which has the parameters about the rows that are selected.

        keeps_keys: whether single keys are asked; without them only `parts` is, and nothing is kept.
        squares: whether the sums of the squares of their rows are asked.
        """
        super().__init__(contents, windows, key=key.parts, **selected)
        self._key, self._keeps_keys, self._squares = key, keeps_keys, squares
        self._codes = arrow_table({"part": np.zeros(1, np.int64)})

    @cached_property
    def parts(self) -> KeyParts:
        """The parts that have rows; without `by` and with one window there is one, which may have none."""
        counts_alone = not self._keeps_keys and self._is_plain
        self._source.as_text = counts_alone and not self._squares
        by = ", ".join(self._groups)
        grouped = f" GROUP BY {by} ORDER BY {by}" if by else ""
        shown = f"SELECT {', '.join([*self._groups, *self._sums])} FROM counted{grouped}"
        with self._reading() as relation:
            if counts_alone and (pairs := self._pairs()) is not None:
                return self._found_parts(pairs)
            if self._source.as_text:
                return self._found_parts(self.columns(self._distinct(relation)))
            counted = self._counted_keys(relation)
            if self._keeps_keys:  # single ones will be asked
                self.keep("counted", counted)
            else:
                table = self.columns(f"WITH counted AS ({counted}) {shown}")
        if self._keeps_keys:
            table = self.columns(shown)
        codes = arrow_array(np.arange(len(table)))
        self._codes = table.select(range(len(self._groups))).append_column("part", codes)
        return self._found_parts(table)

    @property
    def _sums(self) -> list[str]:
        """SQL of the counts of `KeyParts`, of the rows of each key."""
        sums = [
            f"coalesce(sum(history) FILTER ({self._has_key}), 0)::BIGINT AS n",
            f"coalesce(sum(live) FILTER ({self._has_key}), 0)::BIGINT AS m",
            f"coalesce(sum({_ROWS}) FILTER (NOT ({self._has_key})), 0)::BIGINT AS nulls",
            f"count(*) FILTER ({self._has_key}) AS keys",
        ]
        if self._squares:
            square = f"{_ROWS}::HUGEINT * {_ROWS}"
            sums.append(f"coalesce(sum({square}) FILTER ({self._has_key}), 0)::VARCHAR AS squares")
        return sums

    def _pairs(self) -> pa.Table | None:
        """The columns of `parts`, where whole files are read and their rows fit into numbers."""
        source, squares, memory = self._source, self._squares, self.memory
        if not source.plain or not source.by:
            return None
        reading = FileReading(source.plain)
        return self.watched(
            lambda: count_pairs(source, squares=squares, memory=memory, reading=reading),
            reading.stop,
            lambda: reading.share,
        )

    @property
    def _is_plain(self) -> bool:
        """Whether the key is one column, and each row is in one window."""
        return len(self._key.parts) == 1 and (
            self._source.buckets is None or self._source.buckets.are_windows
        )

    def _distinct(self, relation: str) -> str:
        """SQL of the columns of `parts` where no single key is asked: DuckDB counts distinct ones faster."""
        (key,), by = self._columns, ", ".join(self._groups)
        live = f"count({key}) FILTER ({quoted(LIVE)} = 1)" if self._source.has_live else "0::BIGINT"
        sums = [
            f"count({key}) - {live} AS n",
            f"{live} AS m",
            f"count(*) - count({key}) AS nulls",
            f"count(DISTINCT {key}) AS keys",
        ]
        counted = (
            f"SELECT {', '.join([*self._groups, *sums])} FROM ({relation}){f' GROUP BY {by}' if by else ''}"
        )
        return f"FROM {self._source.stored(f'({counted})')}{f' ORDER BY {by}' if by else ''}"

    def _counted_keys(self, relation: str) -> str:
        """SQL of the rows of each key in each part."""
        listed = ", ".join([*self._groups, *self._columns])
        live = f"count(*) FILTER ({quoted(LIVE)} = 1)" if self._source.has_live else "0::BIGINT"
        rows = f"count(*) - {live} AS history, {live} AS live"
        counted = f"SELECT {listed}, {rows} FROM ({relation}) GROUP BY {listed}"
        if self._source.buckets is None or self._source.buckets.are_windows:
            return counted
        sums = ", ".join(f"sum({name})::BIGINT AS {name}" for name in ("history", "live"))
        return f"SELECT {listed}, {sums} FROM {self._source.spread(counted)} GROUP BY {listed}"

    def _found_parts(self, table: pa.Table) -> KeyParts:
        """table: the columns of the group, ascending, and those of `KeyParts`."""
        by, buckets = self._source.by, self._source.buckets
        stored = [single_array(table.column(i)) for i in range(len(self._groups))]
        names = [names_of(key, column) for key, column in zip(by, stored, strict=False)]
        window = np.zeros(len(table), np.int64)
        if buckets is not None:
            window = buckets.windows_of(as_numpy(stored[-1]))
        starts = np.zeros(len(table), bool)  # where another group begins
        starts[:1] = True
        for column in stored[: len(by)]:
            starts[1:] |= _differ(column)
        n, m, nulls, keys = (as_numpy(table.column(name)) for name in ("n", "m", "nulls", "keys"))
        texts = table.column("squares").to_pylist() if self._squares else []
        squares = np.array([int(text) for text in texts], object)
        first = np.flatnonzero(starts)
        return KeyParts(np.cumsum(starts) - 1, window, n, m, nulls, keys, squares, by, names, first)

    def top(self, k: int, parts: Sequence[int]) -> CountedKeys:
        """The k keys with the most rows of each of these parts, most rows first; of equal ones the first."""
        order, kept = f"{_ROWS} DESC, {', '.join(self._columns)}", min(k, MOST_KEYS)
        if not self._groups:
            return self._counted(
                f"SELECT *, 0::BIGINT AS part FROM counted WHERE {self._has_key} "
                f"ORDER BY {order} LIMIT {kept if len(parts) else 0}"
            )
        keyed = f"(FROM counted WHERE {self._has_key})"
        most = with_most(keyed, kept, ", ".join(self._groups), _ROWS, len(self.parts.group))
        with self._asked(part=np.array(parts, np.int64)):
            return self._counted(
                f"SELECT * FROM {self._coded(most)} SEMI JOIN asked USING (part) "
                f"QUALIFY row_number() OVER (PARTITION BY part ORDER BY {order}) <= {kept} "
                f"ORDER BY part, {order}"
            )

    def with_rows(self, least: Sequence[int], parts: Sequence[int]) -> CountedKeys:
        """The keys that have at least `least` rows, a number for each of these parts; most rows first."""
        order = f"{_ROWS} DESC, {', '.join(self._columns)}"
        with self._asked(part=np.array(parts, np.int64), least=np.array(least, np.int64)):
            return self._counted(
                f"SELECT * FROM {self._coded()} JOIN asked USING (part) WHERE {self._has_key} "
                f"AND {_ROWS} >= least ORDER BY part, {order}"
            )

    def rows_of(self, values: Sequence[Any]) -> list[tuple[int, int, int, int]]:
        """The part, the place of the value, and the rows of history and the live ones of each that has some.

        values: of the key, that rows can have, each once.
        """
        if not values:
            return []
        own = [[value] if len(self._key.parts) == 1 else value for value in values]
        columns: dict[str, Any] = {"place": np.arange(len(own))}
        for number, (key, items) in enumerate(zip(self._key.parts, zip(*own, strict=True), strict=False), 1):
            names = names_from(key, [name for item in items if (name := key.name_of(item)) is not None])
            columns[key_name(number)] = stored_keys(key, names) if isinstance(names, np.ndarray) else names
        with self._asked(**columns):
            return self.rows(
                f"SELECT part, place, history, live FROM {self._coded()} "
                f"JOIN asked USING ({', '.join(self._columns)})"
            )

    @property
    def _groups(self) -> list[str]:
        return self._source.group_columns

    @property
    def _columns(self) -> list[str]:
        """The columns of the key, as SQL."""
        return [quoted(key_name(i + 1)) for i in range(len(self._key.parts))]

    @property
    def _has_key(self) -> str:
        return " AND ".join(f"{column} IS NOT NULL" for column in self._columns)

    def _coded(self, counted: str = "counted") -> str:
        """SQL of counted keys, each with the number of its part."""
        if not self._groups:
            return f"(SELECT *, 0::BIGINT AS part FROM {counted})"
        return f"(FROM {counted} JOIN codes USING ({', '.join(self._groups)}))"

    def _counted(self, statement: str) -> CountedKeys:
        with self._asked():
            table = self.columns(statement)
        part, history, live = (as_numpy(table.column(name)) for name in ("part", "history", "live"))
        names = [
            names_of(key, single_array(table.column(key_name(i)))) for i, key in enumerate(self._key.parts, 1)
        ]
        return CountedKeys(part, history, live, self._key.parts, names)

    @contextmanager
    def _asked(self, **columns: Any) -> Iterator[None]:
        """The table `codes` with the number of each part; and `asked` of these columns, if there are any."""
        _ = self.parts
        asked = {"asked": arrow_table(columns)} if columns else {}
        with registered(self.connection, codes=self._codes, **asked):
            yield


def _differ(column: pa.Array) -> NDArray[np.bool_]:
    """Whether each value but the first is another one than that before it; NaN is equal to NaN."""
    import pyarrow.compute as pc

    before, after = column[:-1], column[1:]
    if pa.types.is_floating(column.type):
        before, after = before.view(pa.int64()), after.view(pa.int64())
    return as_numpy(pc.not_equal(before, after).cast(pa.uint8())).astype(bool)
