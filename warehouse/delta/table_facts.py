"""Facts about an open table at its version, kept with the table: delta-rs would read its log for each.

A call opens the same small tables many times, so what is made of their rows is kept, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from deltalake import DeltaTable

if TYPE_CHECKING:
    from tidemark.warehouse.delta.data_files import DataFile

_FACTS = "tidemark_facts"  # the attribute of a table


@dataclass(slots=True)
class TableFacts:
    """What is known of one version of a table.

    files    the files; None before they were listed
    newest   by application its newest version, None without one
    made     what was made of its rows or properties, by a name; nobody may change it
    """

    files: tuple[DataFile, ...] | None = None
    newest: dict[str, int | None] = field(default_factory=dict)
    made: dict[str, Any] = field(default_factory=dict)


# By version: the version that was asked about last, or the next one after a commit.
Facts: TypeAlias = dict[int, TableFacts]


def facts_of(table: DeltaTable) -> TableFacts:
    """What is known of the table at its version."""
    known, version = all_facts(table), table.version()
    if (found := known.get(version)) is None:
        found = TableFacts()
        known.clear()
        known[version] = found
    return found


def know_newest(table: DeltaTable, version: int, newest: Mapping[str, int | None]) -> None:
    """Says which transactions the table's next version has, by application; older facts are forgotten."""
    facts = all_facts(table)
    facts.clear()
    facts[version] = TableFacts(newest=dict(newest))


def all_facts(table: DeltaTable) -> Facts:
    """The facts that are kept with the table: `keep_facts` gives them to another object of the same table."""
    facts: Facts = vars(table).setdefault(_FACTS, {})
    return facts


def keep_facts(table: DeltaTable, facts: Facts) -> None:
    """Keeps the facts with the table."""
    vars(table)[_FACTS] = facts
