"""A question about keys: a window of a key in one view, its mode, and where its rows are read from."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from numpy.typing import NDArray

from tidemark.query.answers.key_answers import KeyFields
from tidemark.query.keys.key_blocks import KeyHistory, rows_of_each
from tidemark.query.keys.key_relation import EventRows, WindowRows
from tidemark.query.keys.key_samples import WindowKeys
from tidemark.query.keys.key_source import KeySource
from tidemark.query.keys.key_windows import KeyWindow
from tidemark.query.keys.live_keys import LiveCounts, LiveSide, LiveTotals
from tidemark.query.keys.scanned_parts import ScannedParts
from tidemark.query.keys.silent_keys import SilentKeys
from tidemark.query.keys.window_counts import WindowCounts
from tidemark.query.keys.window_scan import ScannedWindow
from tidemark.query.reading.shared_fields import shared_fields
from tidemark.warehouse.columns.keys import Key, Names
from tidemark.warehouse.columns.ticks import TickGrid, Window
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.ledger.key_summaries import KeyPromise
from tidemark.warehouse.projections.key_rows import KeyRows, no_rows, sum_counts
from tidemark.warehouse.snapshots.sites import AnySnapshot
from tidemark.warehouse.snapshots.views import KeysView

A = TypeVar("A")


class KeyEvents(Protocol):
    """The rows of `events` with the keys of a view."""

    def rows(self, window: Window) -> EventRows | None:
        """The rows of a window of whole ticks; None if DuckDB cannot read them all."""

    def files(self, window: Window) -> list[tuple[str, DataFile]] | None:
        """The files that `rows` reads, each with its whole path; nothing is read."""

    def counted(self, windows: Sequence[Window]) -> WindowCounts | None:
        """The rows of each key in each of some windows of whole ticks, which ascend.

        None if a sort cannot count them.
        """


@dataclass(frozen=True, slots=True, eq=False)
class KeyQuestion:
    """A window of the keys of a view, and the mode of its answers.

    source: where rows are read from; live rows from the `events` of the snapshot.
    key: the key of the view, with its columns in the order in which values have them.
    promise: key_eps and key_delta of the warehouse, and the sketches' hash functions.
    grid: how time is cut into ticks; None without a time column.
    scanned: the window in a scan that it shares with others; None if it is alone.
    events: the rows of `events`; None if they are not read.
    """

    source: KeySource
    snapshot: AnySnapshot
    view: KeysView
    key: Key
    window: KeyWindow
    mode: str
    promise: KeyPromise
    grid: TickGrid | None
    scanned: ScannedWindow | None = None
    events: KeyEvents | None = None

    def history(self, ticks: Window) -> KeyHistory:
        """The history of a range of ticks."""
        return self.source.history(self.view, ticks)

    @property
    def histories(self) -> list[tuple[KeyHistory, float]]:
        """The history of the whole ticks, and that of each partial tick with its share."""
        whole = [] if self.window.whole is None else [(self.history(self.window.whole), 1.0)]
        partial = self.window.partial_ticks
        return [*whole, *((self.history(Window(cut.tick, cut.tick + 1)), cut.share) for cut in partial)]

    @property
    def live(self) -> LiveSide:
        """The live side of the window, from the ledger."""
        return self.source.live_side(self.view, self.window, self.promise)

    @property
    def silent(self) -> SilentKeys | None:
        """The known facts about the window in the warehouses that do not answer; None if all answer."""
        return self.source.silent(self.view, self.window, self.promise)

    def bounded(self, names: Names, *, exact: bool = False) -> LiveCounts:
        """The rows of names outside of history: live rows, and all rows of warehouses that do not answer.

        exact: the live rows are counted.
        """
        live = self.all_live_rows() if exact else None
        counts = self.live.count(names) if live is None else LiveCounts.exact(rows_of_each(live, names))
        silent = self.silent
        return counts if silent is None else counts + silent.counts(names, exact=exact)

    @property
    def live_totals(self) -> LiveTotals:
        """How many live rows the window has."""
        return self.source.live_totals(self.view, self.window, self.promise)

    def live_rows(self) -> Iterator[KeyRows]:
        """The live rows of the window, from `events`, in pieces that are read as they are taken."""
        return self.source.live_rows(self.snapshot, self.view, self.window)

    def all_live_rows(self) -> KeyRows:
        """The live rows of the window, from `events`."""
        return sum_counts([no_rows(self.view.key), *self.live_rows()])

    @property
    def has_kept(self) -> bool:
        """Whether runs still have removed rows of the window.

        Samples, and listings of persistent keys, count such rows, so they cannot answer then.
        """
        return self.view.has_kept(self.window.overlapping)

    def rows(self, *, summed: bool = False) -> WindowRows:
        """The rows of the window, to be scanned once; from `events` where that is less work.

        summed: whether only the rows of each key are asked, in the window as a whole.
        """
        window, events = self.window.overlapping, self.events
        read = events.rows(window) if events is not None and self._prefers_events(summed=summed) else None
        return WindowRows(self.history(window), self.window.partial_ticks, self.live_rows(), read)

    def counted(self, windows: Sequence[Window]) -> WindowCounts | None:
        """The rows of each key in each of several windows of this one, counted by a sort.

        None if it cannot count them, or is more work than a scan by DuckDB.
        """
        rows = self.history(self.window.overlapping).rows + self.live_totals.rows
        if self.events is None or not self._has_events or self.scan_cost() < self.source.costs.pairs(rows):
            return None
        return self.events.counted(windows)

    def event_files(self) -> list[tuple[str, DataFile]] | None:
        """The files of `events` that summed `rows` read, with whole paths; None if they are of the runs."""
        if self.events is None or not self._prefers_events(summed=True):
            return None
        return self.events.files(self.window.overlapping)

    def lookups(self, names: int, runs: int | None = None) -> float:
        """The cost of looking up so many names in so many runs of the window; None: in all of them."""
        shares = self.history(self.window.overlapping).shares
        source = self.source
        return source.costs.lookups(names, len(shares) if runs is None else runs, far=source.is_far)

    def scan_cost(self, *, summed: bool = False) -> float:
        """The cost of a scan of the `rows`."""
        return min(self._scan_costs(summed=summed))

    def _prefers_events(self, *, summed: bool) -> bool:
        by_runs, by_events = self._scan_costs(summed=summed)
        return by_events < by_runs

    def _scan_costs(self, *, summed: bool) -> tuple[float, float]:
        """The cost by the runs, and by `events` if that has the same rows and the window cuts no tick."""
        history, source = self.history(self.window.overlapping), self.source
        by_runs = source.scan_cost(history)
        if not self._has_events:
            return by_runs, math.inf
        rows = history.rows + self.live_totals.rows
        return by_runs, source.costs.event_keys(rows, history.numbers if summed else math.inf)

    @property
    def _has_events(self) -> bool:
        """Whether `events` has the rows of the window, and a scan of them is quick."""
        is_other = self.view.is_behind or self.window.partial_ticks
        return not (is_other or self.source.is_far or len(self.key.parts) > 1)

    def sampled_keys(self) -> WindowKeys:
        """The keys of the window as far as samples tell them."""
        return self.source.sampled_keys(self.view, self.window)

    def silent_keys(self) -> WindowKeys:
        """The same for the warehouses that do not answer, alone."""
        return self.source.silent_keys(self.view, self.window)


class WantedKeys(ABC, Generic[A]):
    """A question about the keys of a window.

    counts_alone: whether a scan answers it from the numbers of its parts, without single keys.
    needs_squares: whether these numbers have the sum of the squares of the keys' rows.
    bounds_silent: whether it is answered, with bounds, while warehouses do not answer.
    """

    counts_alone: ClassVar[bool] = False
    needs_squares: ClassVar[bool] = False
    bounds_silent: ClassVar[bool] = False

    def windows(self, window: KeyWindow, view: KeysView, grid: TickGrid | None) -> list[KeyWindow]:  # noqa: ARG002
        """The windows that are asked together: the window of the question, alone."""
        return [window]

    @abstractmethod
    def answers(self, questions: Sequence[KeyQuestion]) -> A:
        """The answers, from one question for each of `windows`."""

    def each_answers(self, asked: Sequence[Sequence[KeyQuestion]]) -> list[A]:
        """The answers about several windows, which may share a scan."""
        return [self.answers(questions) for questions in asked]

    def of_scan(self, parts: ScannedParts) -> Sequence[A]:
        """The answers of each part of a scan of `events`; exact."""
        raise InputError(f"this question about {parts.key.name} takes neither where nor by.")

    def counts_of_scan(self, parts: ScannedParts) -> NDArray[Any] | None:  # noqa: ARG002
        """The value of each part's answer; None if the answers of a part are not one value."""
        return None


def scope_fields(question: KeyQuestion, *, exact: bool = False) -> KeyFields:
    """The fields of `KeyScope`, by name."""
    window, live, exact = question.window, question.live_totals, exact or question.mode == "exact"
    histories = question.histories
    n = sum(round(share * history.rows) for history, share in histories)
    nulls = live.nulls + sum(history.nulls for history, share in histories if share == 1)
    m, live_eps, sums = live.rows, live.eps, live.sums
    if (silent := question.silent) is not None:
        n, m, nulls = n + silent.n, m + silent.totals.rows, nulls + silent.nulls
        live_eps, sums = max(live_eps, silent.totals.eps), sums + silent.totals.sums
    return {
        "n": n,
        "m": m,
        "nulls": nulls,
        # Above the promise where a window ends inside a tick: the rows after it count, too. And where live
        # rows were summarised before `alter` made key_eps smaller.
        "eps": 0.0 if exact else max(question.promise.eps, live_eps),
        "confidence": 1.0 if exact else 1.0 - min(1.0, question.promise.delta * max(1, sums)),
        "mode": "exact" if exact else question.mode,
        "key": question.key.name,
        "window": window.shown,
        **shared_fields(question.view, window.widened, question.grid),
    }
