"""Aggregates over all keys of a window, computed by DuckDB in one scan of the rows of the key runs.

A row of a tick that the window covers only in part may lie outside of the window. So a key has, by the
number of its rows,

    certain    those in whole ticks, and live ones
    estimate   and the covered share of each partial tick
    rows       and all rows of partial ticks

Cost: a scan of all blocks of the runs that have rows in the window (key_relation.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.query.keys.key_relation import KeyDatabase, WindowRows, database, stored_names
from tidemark.query.keys.live_keys import LiveCounts
from tidemark.query.reading import spending
from tidemark.warehouse.columns.codes import Ints, stable_order
from tidemark.warehouse.columns.keys import Key, Names, take_names
from tidemark.warehouse.columns.ticks import DAY_US
from tidemark.warehouse.columns.value_encoding import as_numpy

MOST_ROWS = 2**62  # more rows than there are

# (lower bound, estimate, upper bound). Rows with a share below 1 may lie outside the window: they count fully
# in the upper bound and not at all in the lower one.
BoundedEstimate = tuple[int, float, int]


@dataclass(frozen=True, slots=True, eq=False)
class NameCounts:
    """The counts of ascending names; arrays of shape (k,).

    whole: rows in history's whole ticks, exact.
    partial_estimate: the estimated rows in history's partial ticks, by the covered share of each tick.
    partial_most: the most rows in history's partial ticks: all rows of these ticks.
    live: the live rows, and all those of warehouses that do not answer.
    """

    whole: Ints
    partial_estimate: NDArray[np.float64]
    partial_most: Ints
    live: LiveCounts

    @property
    def estimate(self) -> Ints:
        """The likeliest number of rows."""
        return np.rint(self.whole + self.partial_estimate + self.live.estimate).astype(np.int64)

    @property
    def least(self) -> Ints:
        """The certain lower bound."""
        return self.whole + self.live.least

    @property
    def likely(self) -> Ints:
        """A lower bound with probability 1 - delta."""
        return self.whole + self.live.likely

    @property
    def most(self) -> Ints:
        """The certain upper bound."""
        return self.whole + self.partial_most + self.live.most


@dataclass(frozen=True, slots=True, eq=False)
class CountedNames:
    """Ascending names and their counts.

    omitted: the most rows of any other name; 0 if all other names have too few rows to be wanted.
    rows_scanned: the rows that were read to count all names; None if the marks list enough of them.
    """

    names: Names
    counts: NameCounts
    omitted: int = 0
    rows_scanned: int | None = None

    @classmethod
    def certain(cls, names: Names, history: Ints, live: Ints, omitted: int = 0) -> CountedNames:
        """Names of a window of whole ticks, with their rows."""
        none = np.zeros(len(history))
        counts = NameCounts(history, none, none.view(np.int64), LiveCounts.exact(live))
        return cls(names, counts, omitted)

    def take(self, kept: NDArray[np.intp] | Ints, omitted: int = 0) -> CountedNames:
        """Those at some places; of names whose rows are all certain."""
        history, live = self.counts.whole[kept], self.counts.live.least[kept]
        return CountedNames.certain(take_names(self.names, kept), history, live, omitted)

    def first(self, k: int) -> CountedNames:
        """The k names with the most rows, of equal ones the first; of names whose rows are all certain."""
        rows = self.counts.least
        if len(rows) <= k:
            return self
        high = np.flatnonzero(rows >= np.partition(rows, -k - 1)[-k - 1])  # at least k + 1, ascending
        order = high[stable_order(rows[high].max() - rows[high])]
        return self.take(np.sort(order[:k]), int(rows[order[k]]))


def _counted(rows: WindowRows) -> CountedNames | None:
    """All names and their rows, where these are counted without DuckDB."""
    found = None if rows.events is None or rows.events.count is None else rows.events.count()
    if found is None:
        return None
    spending.scans_keys()
    return CountedNames.certain(*found)


def top_names(rows: WindowRows, k: int) -> CountedNames:
    """The k names with the most rows by the estimate, of equal names the first; all if there are fewer."""
    kept = min(k, MOST_ROWS)
    if (counted := _counted(rows)) is not None:
        return counted.first(kept)
    with database(rows) as opened:
        found = _found(opened, rows)
        if not rows.partial:  # each count is certain: no other name has more rows than the next one
            first = f"SELECT * FROM {found} ORDER BY certain DESC, name LIMIT {kept + 1}"
            names = _named(opened, rows, f"SELECT *, 0 AS omitted FROM ({first}) ORDER BY name")
            return names.first(kept)
        return _named(
            opened,
            rows,
            f"WITH found AS MATERIALIZED (FROM {found}), kept AS MATERIALIZED "
            f"(FROM found ORDER BY round_even(estimate, 0) DESC, name LIMIT {kept}) "
            "SELECT *, (SELECT max(rows) FROM found ANTI JOIN kept USING (name)) AS omitted "
            "FROM kept ORDER BY name",
        )


def names_with(rows: WindowRows, least: int) -> CountedNames:
    """All names that may have `least` rows in the window."""
    if (counted := _counted(rows)) is not None:
        return counted.take(np.flatnonzero(counted.counts.least >= least))
    with database(rows) as opened:
        found = _found(opened, rows)
        return _named(
            opened, rows, f"SELECT *, 0 AS omitted FROM {found} WHERE rows >= {least} ORDER BY name"
        )


@dataclass(frozen=True, slots=True)
class Prefix:
    """A prefix of keys, and the rows of all keys that have it.

    level: 1 for the shortest. is_key: whether it is a whole key, so that no prefix is longer.
    whole: rows in history's whole ticks. least, most: certain bounds, inclusive.
    """

    text: str
    level: int
    is_key: bool
    whole: int
    least: int
    estimate: float
    most: int

    def belongs_to(self, other: Prefix) -> bool:
        """Whether all keys with this prefix have the other, too."""
        return not other.is_key and self.level > other.level and self.text.startswith(other.text)


def prefixes(rows: WindowRows, cuts: bytes | Sequence[str], least: int) -> list[Prefix]:
    """All prefixes that may have `least` rows in the window, in the order of their text.

    cuts: the separator that ends a prefix of text, or the formats of the levels of times, the coarsest first.
    """
    with database(rows) as opened:
        found = _found(opened, rows)
        parts = _of_text(found, cuts) if isinstance(cuts, bytes) else _of_times(rows.key, found, cuts)
        sums = ", ".join(f"sum({name})" for name in ("whole", "certain", "estimate", "rows"))
        statement = (
            f"SELECT prefix, level, is_key, {sums} FROM ({parts}) GROUP BY ALL HAVING sum(rows) >= {least} "
            "ORDER BY prefix, level"
        )
        counted = opened.rows(statement)
    return [
        Prefix(
            text if isinstance(text, str) else str(rows.key.value_of(text)),
            level,
            is_key,
            int(whole),
            int(certain),
            estimate,
            int(most),
        )
        for text, level, is_key, whole, certain, estimate, most in counted
    ]


def _of_text(found: str, separator: bytes) -> str:
    """SQL of every prefix of names that are text, as bytes.

    Names that are not UTF-8 are split as hexadecimal digits with a blank after each byte, so that a separator
    is found between bytes alone.
    """
    end, digits = f"decode(unhex('{separator.hex()}'))", separator.hex(" ").upper()
    spaced = "regexp_replace(hex(name), '(..)', '\\1 ', 'g')"
    return (
        f"(WITH texts AS MATERIALIZED (SELECT *, TRY(decode(name)) AS text FROM {found}) "
        + _levels("texts WHERE text IS NOT NULL", "text", end, "encode({})")
        + " UNION ALL "
        + _levels("texts WHERE text IS NULL", spaced, f"'{digits} '", "unhex(replace({}, ' ', ''))")
        + ")"
    )


def _levels(names: str, text: str, end: str, bytes_of: str) -> str:
    """SQL of the prefixes of `text`, which end with `end`; bytes_of: what makes bytes of one."""
    cut = f"SELECT *, string_split({text}, {end}) AS pieces FROM {names}"
    # What ends with a separator has no more; the empty text is a key.
    stop = "len(pieces) + (pieces[-1] <> '' OR octet_length(name) = 0)::INT"
    levels = f"SELECT *, unnest(range(1, {stop})) AS level FROM ({cut})"
    prefix = bytes_of.format(f"array_to_string(pieces[1:level], {end}) || {end}")
    return (
        "SELECT whole, certain, estimate, rows, level, level = len(pieces) AS is_key, "
        f"CASE WHEN is_key THEN name ELSE {prefix} END AS prefix FROM ({levels})"
    )


def _of_times(key: Key, found: str, formats: Sequence[str]) -> str:
    """SQL of every prefix of names that are times."""
    days = key.column_type.unit_us == DAY_US
    time = "DATE '1970-01-01' + name::INTEGER" if days else "make_timestamp(name)"
    texts = ", ".join(f"strftime({time}, '{one}')" for one in formats)
    levels = (
        f"SELECT *, unnest([{texts}]) AS prefix, unnest(range(1, {len(formats) + 1})) AS level FROM {found}"
    )
    return f"SELECT *, level = {len(formats)} AS is_key FROM ({levels})"


def distinct(a: WindowRows) -> BoundedEstimate:
    """The number of keys that have rows in the window."""
    if (counted := _counted(a)) is not None:
        return _rounded([len(counted.names)] * 3)
    with database(a) as opened:
        if not a.partial and a.history.kept is None:
            ((keys,),) = opened.rows(f"SELECT count(DISTINCT name) FROM {opened.relation(a)}")
            return keys, float(keys), keys
        sums = ", ".join(f"sum({term})" for term in _presence("a"))
        return _rounded(opened.rows(f"SELECT {sums} FROM {_found(opened, a)} AS a")[0])


def overlap(a: WindowRows, b: WindowRows) -> list[BoundedEstimate]:
    """The numbers of keys that have rows in both windows, only in the first, and only in the second."""
    in_a, in_b = _presence("a"), _presence("b")
    absent_a, absent_b = ([f"(1 - {term})" for term in reversed(terms)] for terms in (in_a, in_b))
    parts = [(in_a, in_b), (in_a, absent_b), (in_b, absent_a)]
    sums = [f"sum({x} * {y})" for left, right in parts for x, y in zip(left, right, strict=True)]
    with database(a, b) as opened:
        tables = f"{_found(opened, a)} AS a FULL JOIN {_found(opened, b)} AS b ON a.name = b.name"
        found = opened.rows(f"SELECT {', '.join(sums)} FROM {tables}")[0]
    return [_rounded(found[i : i + 3]) for i in (0, 3, 6)]


def _presence(table: str) -> tuple[str, str, str]:
    """Whether a name certainly has rows in the window, the chance that it has, and whether it may have."""
    share = f"least({table}.estimate / {table}.rows, 1)"
    chance = f"CASE WHEN {table}.certain > 0 THEN 1 ELSE 1 - pow(1 - {share}, {table}.rows) END"
    terms = f"({table}.certain > 0)::INT", chance, f"({table}.rows > 0)::INT"
    known, likely, may = (f"coalesce({term}, 0)" for term in terms)
    return known, likely, may


def _rounded(bounds: Sequence[Any]) -> BoundedEstimate:
    low, estimate, high = (0 if bound is None else bound for bound in bounds)
    return int(low), float(estimate), int(high)


def second_moment(rows: WindowRows) -> BoundedEstimate:
    """The sum over all keys of the square of their rows in the window (F2, the self-join size)."""
    if (counted := _counted(rows)) is not None:
        return _rounded([sum_of_squares(counted.counts.least)] * 3)
    with database(rows) as opened:
        if not rows.partial:  # each count is certain
            certain = "certain::HUGEINT"
            ((found,),) = opened.rows(f"SELECT sum({certain} * {certain}) FROM {_found(opened, rows)}")
            return _rounded([found] * 3)
        return _bounds(opened, "a.{0} * a.{0}", f"{_found(opened, rows)} AS a")


def sum_of_squares(rows: Ints) -> int:
    """The exact sum, which is at most the square of all rows together."""
    if rows.sum() < 2**31:
        return int(rows @ rows)
    return sum(one * one for one in rows.tolist())


def inner_product(a: WindowRows, b: WindowRows) -> BoundedEstimate:
    """The sum over all keys of their rows in one window times their rows in the other (the join size)."""
    with database(a, b) as opened:
        tables = f"{_found(opened, a)} AS a JOIN {_found(opened, b)} AS b ON a.name = b.name"
        return _bounds(opened, "a.{0} * b.{0}", tables)


def _bounds(opened: KeyDatabase, term: str, tables: str) -> BoundedEstimate:
    kinds = {"certain": "HUGEINT", "estimate": "DOUBLE", "rows": "HUGEINT"}
    sums = [f"sum({term.format(f'{column}::{kind}')})" for column, kind in kinds.items()]
    return _rounded(opened.rows(f"SELECT {', '.join(sums)} FROM {tables}")[0])


def _found(opened: KeyDatabase, rows: WindowRows) -> str:
    """SQL of a table of the names: whole, partial_estimate, partial_most, live, certain, estimate, rows."""
    ticks = ", ".join(str(partial.tick) for partial in rows.partial)
    whole, live = rows.sums(f" FILTER (tick NOT IN ({ticks}))" if ticks else "")
    cuts = "".join(
        f", coalesce(sum(history) FILTER (tick = {partial.tick}), 0)::BIGINT AS cut{number}"
        for number, partial in enumerate(rows.partial)
    )
    estimate = " + ".join(
        ["0::DOUBLE", *(f"'{one.share!r}'::DOUBLE * cut{i}" for i, one in enumerate(rows.partial))]
    )
    most = " + ".join(["0", *(f"cut{i}" for i in range(len(rows.partial)))])
    return (
        "(SELECT *, whole + live AS certain, whole + partial_estimate + live AS estimate, "
        f"whole + partial_most + live AS rows FROM (SELECT *, {estimate} AS partial_estimate, "
        f"({most})::BIGINT AS partial_most FROM (SELECT name, {whole} AS whole, {live} AS live{cuts} "
        f"FROM {opened.relation(rows)} GROUP BY name)) WHERE rows > 0)"
    )


def _named(opened: KeyDatabase, rows: WindowRows, statement: str) -> CountedNames:
    found = opened.columns(statement)
    whole, most, live = (as_numpy(found.column(name)) for name in ("whole", "partial_most", "live"))
    omitted = found.column("omitted")[0].as_py() if len(found) else None
    estimate = as_numpy(found.column("partial_estimate"))
    counts = NameCounts(whole, estimate, most, LiveCounts.exact(live))
    return CountedNames(stored_names(rows.key, found), counts, omitted or 0)
