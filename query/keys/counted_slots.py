"""In how many slots of a window each key is present, counted by DuckDB in one scan (key_relation.py).

A key is *sure* in a slot if it has a live row there, or a row of history in a tick that lies in the window as
a whole. A key *may* also be in a slot if all of its rows there lie in a tick that the window cuts, because
history does not know the times in a tick. So

    sure slots  <=  slots of the key  <=  slots with rows

A slot is counted once, however many runs and batches have the key there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidemark.query.keys.key_relation import WindowRows, database, stored_names
from tidemark.query.keys.slot_presence import Presence
from tidemark.query.keys.slots import Slots
from tidemark.warehouse.columns.codes import Ints
from tidemark.warehouse.columns.keys import Key, Names, join_names, no_names
from tidemark.warehouse.columns.value_encoding import as_numpy

FEW_SLOTS = 62  # so many fit into the bits of an integer
_COUNTS = ("least", "most", "rows_least", "rows_most")
_ROWS = (
    "coalesce(sum(history + live) FILTER (sure), 0)::BIGINT AS rows_least, "
    "sum(history + live)::BIGINT AS rows_most"
)


@dataclass(frozen=True, slots=True, eq=False)
class CountedSlots:
    """Names, which ascend, and in how many slots they have rows; arrays of shape (k,).

    least, most: certain bounds of the number of slots. rows_least, rows_most: certain bounds of the rows.
    """

    names: Names
    least: Ints
    most: Ints
    rows_least: Ints
    rows_most: Ints

    @classmethod
    def of(cls, found: Presence) -> CountedSlots:
        """The counts of names whose presence is known slot by slot."""
        return cls(found.names, found.least, found.most, found.rows_least, found.rows_most)

    @classmethod
    def joined(cls, key: Key, parts: Sequence[CountedSlots]) -> CountedSlots:
        """The slots of all parts, one part after the other."""
        names = join_names([no_names(key), *(part.names for part in parts)])
        nothing = np.empty(0, np.int64)
        columns = [np.concatenate([nothing, *(getattr(part, name) for part in parts)]) for name in _COUNTS]
        return cls(names, *columns)


def count_slots(rows: WindowRows, slots: Slots, least: int, most_rows: int) -> CountedSlots:
    """All names that may have rows in `least` slots of the window, and no more than `most_rows`."""
    ticks = ", ".join(str(partial.tick) for partial in rows.partial)
    is_sure = f"(live > 0 OR tick NOT IN ({ticks}))" if ticks else "true"
    with database(rows) as opened:
        given = f"(SELECT *, {is_sure} AS sure FROM {opened.relation(rows, slots.of, by_tick=True)})"
        counted = _as_bits(given) if slots.count <= FEW_SLOTS else _as_rows(given)
        found = opened.columns(
            f"FROM ({counted}) WHERE most >= {least} AND rows_least <= {most_rows} ORDER BY name"
        )
    return CountedSlots(stored_names(rows.key, found), *(as_numpy(found.column(name)) for name in _COUNTS))


def _as_bits(given: str) -> str:
    """SQL of the columns of `CountedSlots`: the slots of a name are the bits of two integers."""
    bit = "1::BIGINT << code"
    return (
        f"SELECT name, coalesce(bit_count(bit_or({bit}) FILTER (sure)), 0)::BIGINT AS least, "
        f"bit_count(bit_or({bit}))::BIGINT AS most, {_ROWS} FROM {given} GROUP BY name"
    )


def _as_rows(given: str) -> str:
    """The same for any number of slots, counted from pairs (name, slot)."""
    pairs = f"SELECT name, code, bool_or(sure) AS is_sure, {_ROWS} FROM {given} GROUP BY name, code"
    return (
        "SELECT name, count(*) FILTER (is_sure) AS least, count(*) AS most, sum(rows_least)::BIGINT AS "
        f"rows_least, sum(rows_most)::BIGINT AS rows_most FROM ({pairs}) GROUP BY name"
    )
