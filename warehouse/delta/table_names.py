"""The names of a warehouse's tables: their paths relative to its folder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

PROPERTY_PREFIX = "tidemark."  # of the properties of `events` that are options
EVENTS = "events"
STEPS = "steps"
LEDGER = "ledger"
REJECTED = "rejected"
REMOVALS = "removals"  # this table and the next one come with the first removal
REMOVED = "removed"
PURGES = "purges"  # comes with the first purge
ALWAYS_THERE = (EVENTS, STEPS, LEDGER)  # a warehouse cannot be without these tables
COPIED_FROM = "_copied_from"  # a file with the identity of the source, until a copy is complete
KEYS = "keys"
KEY_MARKS = "key_marks"
GROUP_RUNS = "group_runs"
GROUP_MARKS = "group_marks"
INDEX_RUNS = "index_runs"
INDEX_MARKS = "index_marks"
COMPANIONS = "companions"
COMPANION_MARKS = "companion_marks"
# The folders of the projections' tables.
PARENTS = (
    *("runs", "marks", KEYS, KEY_MARKS, GROUP_RUNS, GROUP_MARKS),
    *(INDEX_RUNS, INDEX_MARKS, COMPANIONS, COMPANION_MARKS),
)
_MARKS_OF = {"runs": "marks", KEYS: KEY_MARKS, GROUP_RUNS: GROUP_MARKS, INDEX_RUNS: INDEX_MARKS}


@lru_cache
def folder_name(column: str) -> str:
    """A column's name as a folder name: letters, digits, '_' and '-' stay, other bytes become ~hex."""
    return re.sub(r"[^A-Za-z0-9_-]", lambda c: "".join(f"~{byte:02x}" for byte in c[0].encode()), column)


def runs_table(measure: str) -> str:
    """The path of a measure's table of runs, relative to the warehouse."""
    return f"runs/{folder_name(measure)}"


def group_runs_table(columns: Sequence[str], measure: str) -> str:
    """The path of the table of runs of a measure by a group with these columns, relative to the warehouse."""
    return f"{GROUP_RUNS}/{group_folder(columns)}/{folder_name(measure)}"


def index_runs_table(columns: Sequence[str]) -> str:
    """The path of the runs of an index on the first of the columns, which includes the other ones."""
    return f"{INDEX_RUNS}/{group_folder(columns)}"


def is_index_runs_table(address: str) -> bool:
    """Whether the address is that of an index's runs table, not of a group by a column `index_runs`."""
    *_, before, parent, _ = ["", "", *address.rstrip("/").split("/")]
    return parent == INDEX_RUNS and before != GROUP_RUNS


def group_folder(columns: Sequence[str]) -> str:
    """The names of the columns, joined by a character that `folder_name` never writes."""
    return ".".join(map(folder_name, columns))


def marks_of(runs_table: str) -> str:
    """The path of the table of marks that belongs to a table of runs."""
    parent, rest = runs_table.split("/", 1)
    return f"{_MARKS_OF[parent]}/{rest}"


def is_runs_table(name: str) -> bool:
    """Whether a text is a path, relative to the warehouse, of a measure's, key's, group's or index's runs."""
    parent, *rest = name.split("/")
    is_deep = len(rest) == (2 if parent == GROUP_RUNS else 1)
    return (
        is_deep and parent in _MARKS_OF and all(re.fullmatch(r"[\w~.-]*[\w~-][\w~.-]*", one) for one in rest)
    )
