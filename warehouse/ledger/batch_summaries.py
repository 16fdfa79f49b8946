"""Summaries of a batch by tick: what the ledger keeps of its rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches import GK, merge
from tidemark.warehouse.columns.keys import KeyColumn, unify_names
from tidemark.warehouse.columns.measures import DecodedColumn, Measure, epoch_micros
from tidemark.warehouse.columns.ticks import NO_TICK
from tidemark.warehouse.events.reader import DecodedRows
from tidemark.warehouse.ledger.key_summaries import KeyPromise, KeySummary, summarise
from tidemark.warehouse.ledger.key_summaries import join as join_keys
from tidemark.warehouse.settings.options import Options

_HELD_ROWS = 2**20  # rows that are summarised at once
_HELD_PARTS = 64  # pieces of a tick whose summaries are held before they are joined


@dataclass(frozen=True, slots=True)
class Summary:
    """What a ledger row says of one measure."""

    measure: str
    nans: int
    nulls: int
    sketch: GK


@dataclass(frozen=True, slots=True)
class TickSummary:
    """What a batch brought to one tick. The time range is in microseconds, inclusive; None: no times.

    `keys` is None where the warehouse has no key.
    """

    tick: int
    rows: int
    times: tuple[int, int] | None
    measures: tuple[Summary, ...]
    keys: KeySummary | None = None


@dataclass(slots=True)
class Summaries:
    """Grows piece by piece; summaries of the rows by tick, each certified to `eps` of its rows.

    Each is of pieces, none of other summaries: more than are held of one tick make one more summary.
    """

    options: Options
    eps: float
    _pieces: dict[int, list[TickSummary]] = field(default_factory=dict)
    _joined: list[TickSummary] = field(default_factory=list)
    _held: list[DecodedRows] = field(default_factory=list)

    @property
    def columns(self) -> tuple[Measure, ...]:
        """What a piece has to hold beside the keys: the measures, then the time."""
        time = self.options.time_column
        return (*self.options.measures, *([time] if time else []))

    def add(self, piece: DecodedRows) -> None:
        """Takes the rows of a piece with `columns`, and the keys where there is a key."""
        self._held.append(piece)
        if sum(len(held.ticks) for held in self._held) >= _HELD_ROWS:
            self._summarise()

    def finish(self) -> list[TickSummary]:
        """The summaries; several of a tick that has very many rows."""
        self._summarise()
        return [*self._joined, *(join(parts, self.eps) for parts in self._pieces.values())]

    def _summarise(self) -> None:
        if not self._held:
            return
        piece = self._held[0] if len(self._held) == 1 else _joined(self._held)
        self._held = []
        order = np.argsort(piece.ticks, kind="stable")
        ticks, starts = np.unique(piece.ticks[order], return_index=True)
        for tick, rows in zip(ticks.tolist(), np.split(order, starts[1:]), strict=True):
            parts = self._pieces.setdefault(tick, [])
            parts.append(self._summary(tick, rows, piece))
            if len(parts) == _HELD_PARTS:
                self._joined.append(join(self._pieces.pop(tick), self.eps))

    def _summary(self, tick: int, rows: Any, piece: DecodedRows) -> TickSummary:
        measures = []
        for measure, column in zip(self.options.measures, piece.columns, strict=False):
            nan, null = column.nan[rows], column.null[rows]
            values = np.sort(column.stored[rows][~(nan | null)])
            sketch = GK.from_sorted(values, self.eps, measure.dtype)
            measures.append(Summary(measure.name, int(nan.sum()), int(null.sum()), sketch))
        moments, times = np.zeros(len(rows), np.int64), None
        time = self.options.time_column
        if time:
            column = piece.columns[-1]
            known = ~column.null[rows]
            moments[known] = epoch_micros(time, column.stored[rows][known])
            times = (int(moments[known].min()), int(moments[known].max())) if known.any() else None
        keys = None
        if piece.keys is not None:
            mine = KeyColumn(piece.keys.names, _codes(piece.keys)[rows], piece.keys.null[rows])
            keys = summarise(mine, moments, KeyPromise.of(self.options))
        return TickSummary(tick, len(rows), times, tuple(measures), keys)


def _joined(pieces: Sequence[DecodedRows]) -> DecodedRows:
    columns = tuple(
        DecodedColumn(
            *(np.concatenate([getattr(one, part) for one in same]) for part in ("stored", "nan", "null"))
        )
        for same in zip(*(piece.columns for piece in pieces), strict=True)
    )
    parts = [piece.keys for piece in pieces if piece.keys is not None]
    keys = None
    if parts:
        names, places = unify_names([one.names for one in parts])
        codes = [place[_codes(one)] for one, place in zip(parts, places, strict=True)]
        keys = KeyColumn(names, np.concatenate(codes), np.concatenate([one.null for one in parts]))
    return DecodedRows(np.concatenate([piece.ticks for piece in pieces]), columns, keys)


def _codes(keys: KeyColumn) -> NDArray[np.int64]:
    return np.arange(len(keys.null)) if keys.codes is None else keys.codes


def by_tick(parts: Iterable[TickSummary], eps: float) -> list[TickSummary]:
    """The summaries of a batch, ascending: those of its tasks, all of a tick joined at once.

    One of no rows where there are none.
    """
    found: dict[int, list[TickSummary]] = {}
    for part in parts:
        found.setdefault(part.tick, []).append(part)
    return [join(same, eps) for _, same in sorted(found.items())] or [TickSummary(NO_TICK, 0, None, ())]


def join(parts: Sequence[TickSummary], eps: float) -> TickSummary:
    """The summary of several of one tick, pruned no further than `eps`, which each keeps."""
    filled = [part for part in parts if part.rows]
    if len(filled) < 2:
        return filled[0] if filled else parts[0]  # empty batches have no sketches
    measures = tuple(
        Summary(
            same[0].measure,
            sum(one.nans for one in same),
            sum(one.nulls for one in same),
            merge([one.sketch for one in same], eps),
        )
        for same in zip(*(part.measures for part in filled), strict=True)
    )
    ends = [part.times for part in filled if part.times]
    times = (min(t[0] for t in ends), max(t[1] for t in ends)) if ends else None
    keys = join_keys([part.keys for part in filled if part.keys is not None])
    return TickSummary(filled[0].tick, sum(part.rows for part in filled), times, measures, keys)
