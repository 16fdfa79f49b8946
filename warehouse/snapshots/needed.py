"""What a question needs of a snapshot, by names; the newest options tell the projections of these names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.warehouse.projections.key_counts import KeyCounts
from tidemark.warehouse.projections.sorted_values import SortedValues
from tidemark.warehouse.runs.projection import Projection
from tidemark.warehouse.settings.options import Options


@dataclass(frozen=True, slots=True)
class Needed:
    """The projections of a question.

    measures     names of measures, None for the first one
    keys         columns of keys, None for the first key
    given        further projections
    all          whether it needs all projections of the warehouse
    live_rows    whether it reads live rows
    """

    measures: Sequence[str | None] = ()
    keys: Sequence[Any] = ()
    given: Sequence[Projection[Any]] = ()
    all: bool = False
    live_rows: bool = False

    def projections(self, options: Options) -> Sequence[Projection[Any]]:
        """The projections; InputError if the options have no such measure or key."""
        if self.all:
            return options.projections
        values = [SortedValues(options.measure(name)) for name in self.measures]
        return [*values, *map(options.own_group, self.given), *map(options.key_count, self.keys)]

    def runs_tables(self, options: Options) -> list[str]:
        """The runs tables of the projections, in the order in which they are read; errors as `projections`.

        Keys come last: the key of a group has at least the steps of the group, as a load commits keys first.
        """
        ordered = sorted(self.projections(options), key=lambda one: isinstance(one, KeyCounts))
        return list(dict.fromkeys(one.runs_table for one in ordered))


ALL = Needed(all=True)
