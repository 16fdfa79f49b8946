"""Summaries of the rows of a batch, by tick: the content of the ledger rows.

A tick of a batch has, for each measure, a GK summary and the counts of NaN and NULL, for each key an ECM
summary (key_summaries.py), and the cell of each companion (companions/cells.py).

Source: Greenwald and Khanna, SIGMOD 2001 (summary) and PODS 2004 (merge).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.sketches import GK, merge
from tidemark.warehouse.columns.codes import stable_order, unique_codes
from tidemark.warehouse.columns.keys import KeyColumn, unify_names
from tidemark.warehouse.columns.ticks import NO_TICK
from tidemark.warehouse.columns.value_encoding import DecodedColumn, Measure, epoch_micros
from tidemark.warehouse.companions.cells import Cell, join_cells
from tidemark.warehouse.events.reader import DecodedRows
from tidemark.warehouse.ledger.key_summaries import KeyPromise, KeySummary, are_alike, summarise
from tidemark.warehouse.ledger.key_summaries import join as join_keys
from tidemark.warehouse.settings.options import Options


@dataclass(frozen=True, slots=True)
class MeasureSummary:
    """One measure in one tick: its counts of NaN and NULL, and the GK summary of its other values."""

    measure: str
    nans: int
    nulls: int
    sketch: GK


@dataclass(frozen=True, slots=True)
class TickSummary:
    """The rows of a batch, or of a range of batches, in one tick.

    `times` is the range of event times in microseconds, both ends inclusive; None if no row has a time.
    `measures` are the measures that the warehouse had when the rows came, in their order. `keys` are keyed by
    `KeyCounts.ledger_field`, `companions` by name.
    """

    tick: int
    rows: int
    times: tuple[int, int] | None
    measures: tuple[MeasureSummary, ...]
    keys: Mapping[str, KeySummary] = field(default_factory=dict)
    companions: Mapping[str, Cell] = field(default_factory=dict)


@dataclass(slots=True)
class TickSummarizer:
    """Summarises rows by tick, piece by piece, with a rank error of at most `eps` of a summary's rows.

    Merges are not nested here: each summary is one merge of at most `Tuning.summary_parts` partial summaries.
    A tick with more of them gets several summaries. About `Tuning.summary_rows` rows are buffered.
    """

    options: Options
    eps: float
    _partial: dict[int, list[TickSummary]] = field(default_factory=dict)
    _finished: list[TickSummary] = field(default_factory=list)
    _buffer: list[DecodedRows] = field(default_factory=list)

    @property
    def columns(self) -> tuple[Measure, ...]:
        """The columns that a piece must have: the measures, then the time if there is one."""
        time = self.options.time_column
        return (*self.options.measures, *([time] if time else []))

    def add(self, piece: DecodedRows) -> None:
        """Adds the rows of a piece. It has the columns `columns`, and all keys of the warehouse."""
        if len(piece.ticks):
            self._buffer.append(piece)
        if sum(len(waiting.ticks) for waiting in self._buffer) >= self.options.tuning.summary_rows:
            self._summarise()

    def finish(self) -> list[TickSummary]:
        """The summaries of all rows added; a tick with very many rows has several."""
        self._summarise()
        return [*self._finished, *(join(parts, self.eps) for parts in self._partial.values())]

    def _summarise(self) -> None:
        if not self._buffer:
            return
        piece = self._buffer[0] if len(self._buffer) == 1 else _concatenate(self._buffer)
        self._buffer = []
        ticks, codes = unique_codes(piece.ticks)
        ends = np.cumsum(np.bincount(codes, minlength=len(ticks)))
        used = np.flatnonzero(np.diff(ends, prepend=0))
        parts_of_rows = np.split(stable_order(codes), ends[used[:-1]])
        for tick, rows in zip(ticks[used].tolist(), parts_of_rows, strict=True):
            parts = self._partial.setdefault(tick, [])
            parts.append(self._summary(tick, rows, piece))
            if len(parts) == self.options.tuning.summary_parts:
                self._finished.append(join(self._partial.pop(tick), self.eps))

    def _summary(self, tick: int, rows: Any, piece: DecodedRows) -> TickSummary:
        measures = []
        for measure, column in zip(self.options.measures, piece.columns, strict=False):
            nan, null = column.nan[rows], column.null[rows]
            values = np.sort(column.stored[rows][~(nan | null)])
            sketch = GK.from_sorted(values, self.eps, measure.dtype)
            measures.append(MeasureSummary(measure.stored_name, int(nan.sum()), int(null.sum()), sketch))
        moments, times = np.zeros(len(rows), np.int64), None
        time = self.options.time_column
        if time:
            column = piece.columns[-1]
            valid = ~column.null[rows]
            moments[valid] = epoch_micros(time, column.stored[rows][valid])
            times = (int(moments[valid].min()), int(moments[valid].max())) if valid.any() else None
        keys = {}
        for counts, column_of_key in zip(self.options.key_counts, piece.keys, strict=True):
            names, null = column_of_key.names, column_of_key.null[rows]
            column_rows = KeyColumn(names, _codes(column_of_key)[rows], null)
            keys[counts.ledger_field] = summarise(column_rows, moments, KeyPromise.of(self.options), tick)
        if time:
            moments[~valid] = NO_TICK
        else:
            moments[:] = NO_TICK
        taken = [column.take(pa.array(rows)) for column in piece.companions]
        companions = self.options.companions.summarise(tick, taken, moments)
        return TickSummary(tick, len(rows), times, tuple(measures), keys, companions)


def _concatenate(pieces: Sequence[DecodedRows]) -> DecodedRows:
    columns = tuple(
        DecodedColumn(
            *(np.concatenate([getattr(part, name) for part in parts]) for name in ("stored", "nan", "null"))
        )
        for parts in zip(*(piece.columns for piece in pieces), strict=True)
    )
    keys = []
    for parts_of_key in zip(*(piece.keys for piece in pieces), strict=True):
        names, places = unify_names([part.names for part in parts_of_key])
        null = np.concatenate([part.null for part in parts_of_key])
        codes = np.zeros(len(null), np.int64)  # rows without a key have no code: a piece may have no names
        present = [place[_codes(part)[~part.null]] for part, place in zip(parts_of_key, places, strict=True)]
        codes[~null] = np.concatenate(present)
        keys.append(KeyColumn(names, codes, null))
    companions = [
        pa.concat_arrays(parts) for parts in zip(*(piece.companions for piece in pieces), strict=True)
    ]
    return DecodedRows(
        np.concatenate([piece.ticks for piece in pieces]), columns, tuple(keys), tuple(companions)
    )


def _codes(keys: KeyColumn) -> NDArray[np.int64]:
    return np.arange(len(keys.null)) if keys.codes is None else keys.codes


def by_tick(parts: Iterable[TickSummary], eps: float) -> list[TickSummary]:
    """The summaries of a batch from those of its tasks: one per tick, ascending.

    A batch without rows has one summary, of zero rows, with the tick NO_TICK.
    """
    groups: dict[int, list[TickSummary]] = {}
    for part in parts:
        groups.setdefault(part.tick, []).append(part)
    return [join(group, eps) for _, group in sorted(groups.items())] or [TickSummary(NO_TICK, 0, None, ())]


def can_join(parts: Sequence[TickSummary], eps: float) -> bool:
    """Whether `join` can keep the rank error: an alter of eps or key_eps may have come between the parts."""
    filled = [part for part in parts if part.rows]
    by_name: dict[str, list[GK]] = {}
    for part in filled:
        for one in part.measures:
            by_name.setdefault(one.measure, []).append(one.sketch)
    fits = all(max(sketch.eps for sketch in sketches) <= eps for sketches in by_name.values())
    in_all = [key for key in (filled[0].keys if filled else ()) if all(key in part.keys for part in filled)]
    return fits and all(are_alike([part.keys[key] for part in filled]) for key in in_all)


def _join_measures(parts: Sequence[MeasureSummary], eps: float) -> MeasureSummary:
    nans, nulls = sum(part.nans for part in parts), sum(part.nulls for part in parts)
    return MeasureSummary(parts[0].measure, nans, nulls, merge([part.sketch for part in parts], eps))


def join(parts: Sequence[TickSummary], eps: float) -> TickSummary:
    """The summary of all rows of several summaries of one tick, at least one.

    Each of the parts has a rank error of at most `eps` of its rows, and so has the result. Measures, keys and
    companions that not all parts summarise, because an alter came between them, are left out.
    """
    filled = [part for part in parts if part.rows]
    if len(filled) < 2:
        return filled[0] if filled else parts[0]  # a summary of zero rows has no sketches
    by_name = [{one.measure: one for one in part.measures} for part in filled]
    measures = tuple(
        _join_measures([part[one.measure] for part in by_name], eps)
        for one in filled[0].measures
        if all(one.measure in part for part in by_name)  # an alter may have come between the batches
    )
    spans = [part.times for part in filled if part.times]
    times = (min(first for first, _ in spans), max(last for _, last in spans)) if spans else None
    in_all = [key for key in filled[0].keys if all(key in part.keys for part in filled)]
    keys = {key: join_keys([part.keys[key] for part in filled]) for key in in_all}
    companions = {
        name: join_cells([part.companions[name] for part in filled])
        for name in filled[0].companions
        if all(name in part.companions for part in filled)
    }
    return TickSummary(filled[0].tick, sum(part.rows for part in filled), times, measures, keys, companions)
