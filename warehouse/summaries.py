"""Summaries of a batch by tick: what the ledger keeps of its rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sketches import GK, merge
from warehouse.events import Piece
from warehouse.measures import Column, Measure, epoch_micros
from warehouse.ticks import NO_TICK

_HELD_ROWS = 2**20  # rows that are summarised at once


@dataclass(frozen=True, slots=True)
class Summary:
    """What a ledger row says of one measure."""

    measure: str
    nans: int
    nulls: int
    sketch: GK


@dataclass(frozen=True, slots=True)
class TickSummary:
    """What a batch brought to one tick. The time range is in microseconds, inclusive; None: no times."""

    tick: int
    rows: int
    times: tuple[int, int] | None
    measures: tuple[Summary, ...]


@dataclass(slots=True)
class Summaries:
    """Grows piece by piece; one summary a tick, each certified to `eps` of its rows."""

    measures: Sequence[Measure]
    time: Measure | None
    eps: float
    _by_tick: dict[int, TickSummary] = field(default_factory=dict)
    _held: list[Piece] = field(default_factory=list)

    @property
    def columns(self) -> tuple[Measure, ...]:
        """What a piece has to hold: the measures, then the time."""
        return (*self.measures, *([self.time] if self.time else []))

    def add(self, piece: Piece) -> None:
        """Takes the rows of a piece with `columns`."""
        self._held.append(piece)
        if sum(len(held.ticks) for held in self._held) >= _HELD_ROWS:
            self._summarise()

    def join(self, others: Iterable[TickSummary]) -> None:
        """Takes summaries of other rows that promise `eps` too."""
        for one in others:
            known = self._by_tick.get(one.tick)
            self._by_tick[one.tick] = one if known is None else join([known, one], self.eps)

    def finish(self) -> list[TickSummary]:
        """The summaries, by tick; one of no rows where there were none."""
        self._summarise()
        found = sorted(self._by_tick.values(), key=lambda one: one.tick)
        return found or [TickSummary(NO_TICK, 0, None, ())]

    def _summarise(self) -> None:
        if not self._held:
            return
        piece = self._held[0] if len(self._held) == 1 else _joined(self._held)
        self._held = []
        order = np.argsort(piece.ticks, kind="stable")
        ticks, starts = np.unique(piece.ticks[order], return_index=True)
        for tick, rows in zip(ticks.tolist(), np.split(order, starts[1:]), strict=True):
            self.join([self._summary(tick, rows, piece.columns)])

    def _summary(self, tick: int, rows: Any, columns: tuple[Column, ...]) -> TickSummary:
        measures = []
        for measure, column in zip(self.measures, columns, strict=False):
            nan, null = column.nan[rows], column.null[rows]
            values = np.sort(column.stored[rows][~(nan | null)])
            sketch = GK.from_sorted(values, self.eps, measure.dtype)
            measures.append(Summary(measure.name, int(nan.sum()), int(null.sum()), sketch))
        times = None
        if self.time:
            column = columns[-1]
            known = epoch_micros(self.time, column.stored[rows][~column.null[rows]])
            times = (int(known.min()), int(known.max())) if len(known) else None
        return TickSummary(tick, len(rows), times, tuple(measures))


def _joined(pieces: Sequence[Piece]) -> Piece:
    columns = tuple(
        Column(*(np.concatenate([getattr(one, part) for one in same]) for part in ("stored", "nan", "null")))
        for same in zip(*(piece.columns for piece in pieces), strict=True)
    )
    return Piece(np.concatenate([piece.ticks for piece in pieces]), columns)


def join(parts: Sequence[TickSummary], eps: float) -> TickSummary:
    """The summary of several of one tick, pruned no further than `eps`, which each keeps."""
    if not any(part.rows for part in parts):
        return parts[0]  # empty batches have no sketches
    parts = [part for part in parts if part.rows]
    measures = tuple(
        Summary(
            same[0].measure,
            sum(one.nans for one in same),
            sum(one.nulls for one in same),
            merge([one.sketch for one in same], eps),
        )
        for same in zip(*(part.measures for part in parts), strict=True)
    )
    ends = [part.times for part in parts if part.times]
    times = (min(t[0] for t in ends), max(t[1] for t in ends)) if ends else None
    return TickSummary(parts[0].tick, sum(part.rows for part in parts), times, measures)
