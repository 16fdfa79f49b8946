"""Warehouses, asked as one with others, that do not answer, and what was read of them last."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from tidemark.warehouse.columns.ticks import now_us
from tidemark.warehouse.errors import TidemarkError
from tidemark.warehouse.snapshots.views import AnyView, SilentPart


@dataclass(slots=True)
class LastRead:
    """What a reader of several warehouses read of each last.

    looked   by name, when the warehouse answered last, in microseconds since 1970
    views    by name and place, the last view; a place is a measure or a key
    """

    looked: dict[str, int] = field(default_factory=dict)
    views: dict[tuple[str, Hashable], SilentPart] = field(default_factory=dict)

    def keep(self, place: Hashable, views: Mapping[str, AnyView]) -> None:
        """Keeps views that were read, as of the last look at each."""
        for name, view in views.items():
            self.views[name, place] = SilentPart(view, self.looked.get(name, now_us()))


@dataclass(frozen=True, eq=False)
class Silent:
    """The warehouses that do not answer.

    order      the names of all warehouses
    horizons   for each of them the tick before which its rows have expired
    errors     by name, the errors of those that do not answer
    last       what was last read of each warehouse
    """

    order: tuple[str, ...]
    horizons: tuple[int | None, ...]
    errors: Mapping[str, TidemarkError]
    last: LastRead

    def parts(self, place: Hashable) -> dict[str, SilentPart]:
        """The last view of each silent warehouse; its error if no view of the measure or key was read."""
        for name, error in self.errors.items():
            if (name, place) not in self.last.views:
                raise error
        return {name: self.last.views[name, place] for name in self.errors}

    def refuse(self) -> None:
        """The error of the first warehouse that does not answer, for what needs the rows of all."""
        for error in self.errors.values():
            raise type(error)(
                f"{error} Without it, quantiles, ranks, shares, histograms and summaries of all rows of a "
                "window, frequencies, heavy hitters, top and distinct keys are bounded; this question is not."
            )
