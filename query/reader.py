"""The warehouse as its readers see it: questions in, answers with bounds out. No JVM.

A `Warehouse` looks for newer data before each question and answers from one view, a value that stays as it
is, so a load or a merge beside it changes nothing under way. If a file of the view is gone because
maintenance swept it after a merge, the question is put again to the newer view.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Literal, Self, TypeVar, overload

from numpy.typing import NDArray

from tidemark.query.answers.answer import Answer, Answers, CdfAnswer, Histogram, RankAnswer
from tidemark.query.answers.info import Info
from tidemark.query.answers.key_answer import CountAnswer, FrequencyAnswer, HitterAnswer
from tidemark.query.keys.frequencies import MODES as KEY_MODES
from tidemark.query.keys.frequencies import (
    KeyQuestion,
    frequencies,
    heavy_hitters,
    inner_product,
    key_range,
    key_scope,
    self_join,
    top,
)
from tidemark.query.keys.key_cache import KeyMemory
from tidemark.query.keys.key_windows import KeyWindow, key_window
from tidemark.query.quantiles.histograms import check_bins, histogram
from tidemark.query.quantiles.questions import (
    Question,
    cdf,
    check_mode,
    check_phis,
    quantiles,
    ranks,
    several,
)
from tidemark.query.quantiles.rank_search import MODES, Source
from tidemark.query.quantiles.window_bounds import Memory
from tidemark.query.reading.block_reader import BlockReader
from tidemark.query.reading.windows import choose_window, empty_window, shown_window, tick_range
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.measures import Measure
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.ledger.key_summaries import KeyPromise
from tidemark.warehouse.projections.key_rows import KeyRows
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.snapshots.live_rows import live_key_rows, live_values
from tidemark.warehouse.snapshots.snapshot import KeysView, Snapshot, View
from tidemark.warehouse.snapshots.snapshot_reader import SnapshotReader
from tidemark.warehouse.snapshots.system_tables import Contents

Mode = Literal["quick", "accurate", "exact"]
KeyMode = Literal["approximate", "exact"]
T = TypeVar("T")
V = TypeVar("V", View, KeysView)

ATTEMPTS = 3  # files gone three times under three newer views are damage, not maintenance


class Reader:
    """The questions to an open warehouse. May be shared between threads.

    What all questions take:

    measure: the column asked of; the first one where it is left out.
    last: only the newest rows by event time, such as "7d", back from the newest tick of the data; a number
        of steps where the warehouse has no time column.
    between: (start, end), the end exclusive, None for an open side. Windows are whole ticks: the answer's
        `window` says which.
    mode: "quick" from memory, error <= eps * N; "accurate", error <= eps * m, reads a few blocks; "exact"
        also reads the live rows.

    InputError for a question that cannot be, EmptyWindow where there are no rows to answer from.
    """

    def __init__(self, snapshot: SnapshotReader | Snapshot) -> None:
        self._snapshot = snapshot
        self._blocks = BlockReader(snapshot.store)
        self._memory = Memory()
        self._keys = KeyMemory(snapshot.store, self._blocks)
        self._lock = threading.Lock()

    @property
    def options(self) -> Options:
        """What the warehouse was created with, and its columns."""
        return self._snapshot.options

    @property
    def identity(self) -> str:
        """What tells this warehouse from another one at the same place."""
        return self._snapshot.identity

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The measures, the first being the one that is meant where none is named."""
        return tuple(self._snapshot.options.measures)

    @property
    def key(self) -> Key | None:
        """The key's column; None where the warehouse has none, or knows no columns yet."""
        return self._snapshot.options.key_column

    @property
    def eps(self) -> float:
        """The promise, fixed when the warehouse was created."""
        return float(self._snapshot.options.eps)

    @property
    def tick(self) -> timedelta | None:
        """The grain of windows; None where the warehouse has no time column and windows are of steps."""
        tick_us = self._snapshot.options.tick_us
        return None if tick_us is None else timedelta(microseconds=tick_us)

    def span(self, measure: str | None = None, *, last: Any = None, between: Any = None) -> tuple[Any, Any]:
        """(start, end) of the window's ticks between the data's first and last, the end exclusive.

        Both are times or step numbers. EmptyWindow where no tick of the data lies in the window.
        """
        view, tick_us = self._newest(measure), self._snapshot.options.tick_us
        ticks = tick_range(view)
        window = choose_window(lambda: ticks, last, between, tick_us)
        if ticks is None or window.misses(*ticks):
            raise empty_window(view, window, 0, tick_us)
        held = Window(max(window.start, ticks[0]), min(window.stop, ticks[1] + 1))
        start, end = shown_window(held, tick_us) or (None, None)
        return start, end

    def refresh(self) -> bool:
        """Looks for newer data, as every question does by itself; whether there was any."""
        with self._lock:
            return bool(self._snapshot.refresh())

    def pinned(self) -> Self:
        """The warehouse as it is now, which does not refresh itself; it shares what is in memory."""
        other = self.twin()
        with self._lock:
            self._snapshot.refresh()
            other._snapshot = self._snapshot.pinned()  # noqa: SLF001  one of this class
        return other

    def twin(self) -> Self:
        """Another object for this warehouse, which shares what is in memory."""
        return copy.copy(self)

    def contents(self) -> Contents:
        """Which batches, steps and runs there are now, and the way to their rows."""
        with self._lock:
            self._snapshot.refresh()
            return self._snapshot.contents()

    def info(self) -> Info:
        """Steps, runs by level, live batches, bytes and versions."""
        with self._lock:
            self._snapshot.refresh()
            return Info(self._snapshot.info())

    @overload
    def quantile(
        self,
        phi: Sequence[Any] | NDArray[Any],
        measure: str | None = None,
        *,
        last: Any = None,
        between: Any = None,
        mode: Mode = "accurate",
    ) -> Answers[Answer]: ...
    @overload
    def quantile(
        self,
        phi: Any,
        measure: str | None = None,
        *,
        last: Any = None,
        between: Any = None,
        mode: Mode = "accurate",
    ) -> Answer: ...
    def quantile(
        self,
        phi: Any,
        measure: str | None = None,
        *,
        last: Any = None,
        between: Any = None,
        mode: Mode = "accurate",
    ) -> Answer | Answers[Answer]:
        """The phi-quantile: the smallest x with at least ceil(phi * N) rows <= x; phi = 0 is the minimum.

        `phi` is a number from 0 to 1 or a sequence of them, which share one round of reads.
        """
        phis = check_phis(phi if several(phi) else [phi])
        found = self._ask(lambda question: quantiles(question, phis), measure, last, between, mode)
        return _answers(found, Answer) if several(phi) else found[0]

    def rank(
        self,
        x: Any,
        measure: str | None = None,
        *,
        last: Any = None,
        between: Any = None,
        mode: Mode = "accurate",
    ) -> RankAnswer | Answers[RankAnswer]:
        """How many rows are <= x; `x` is of the measure's type, or a sequence of such."""
        points = list(x) if several(x) else [x]
        found = self._ask(lambda question: ranks(question, points), measure, last, between, mode)
        return _answers(found, RankAnswer) if several(x) else found[0]

    def cdf(
        self,
        x: Any,
        measure: str | None = None,
        *,
        last: Any = None,
        between: Any = None,
        mode: Mode = "accurate",
    ) -> CdfAnswer | Answers[CdfAnswer]:
        """The share of the rows that are <= x; `x` is of the measure's type, or a sequence of such."""
        points = list(x) if several(x) else [x]
        found = self._ask(lambda question: cdf(question, points), measure, last, between, mode)
        return _answers(found, CdfAnswer) if several(x) else found[0]

    def histogram(
        self,
        bins: Any = 20,
        measure: str | None = None,
        *,
        last: Any = None,
        between: Any = None,
        mode: Mode = "accurate",
    ) -> Histogram:
        """Counts in bins of equal width from the least to the greatest number, or between given edges.

        `bins` is their number, or their edges, ascending. Bins are closed on the left, the last one on both.
        """
        checked = check_bins(bins)
        return self._ask(lambda question: histogram(question, checked), measure, last, between, mode)

    def frequency(
        self, key: Any, *, last: Any = None, between: Any = None, mode: KeyMode = "approximate"
    ) -> FrequencyAnswer | Answers[FrequencyAnswer]:
        """How many rows have the key; `key` is of the key column's type, or a sequence of such."""
        asked = list(key) if several(key) else [key]
        found = self._ask_keys(lambda question: frequencies(question, asked), last, between, mode)
        return _answers(found, FrequencyAnswer) if several(key) else found[0]

    def heavy_hitters(
        self, phi: Any, *, last: Any = None, between: Any = None, mode: KeyMode = "approximate"
    ) -> Answers[HitterAnswer]:
        """Every key with at least phi of the rows that have a key, most rows first.

        Among them may be some of which it is not certain: each says so.
        """
        return self._ask_keys(lambda asked: _hitters(asked, heavy_hitters(asked, phi)), last, between, mode)

    def top(
        self, k: int = 10, *, last: Any = None, between: Any = None, mode: KeyMode = "approximate"
    ) -> Answers[HitterAnswer]:
        """The k keys with most rows; `certain` says that no key that is left out has more."""
        return self._ask_keys(lambda asked: _hitters(asked, top(asked, k)), last, between, mode)

    def key_range(
        self, low: Any, high: Any, *, last: Any = None, between: Any = None, mode: KeyMode = "approximate"
    ) -> CountAnswer:
        """The rows with low <= key < high, None for an open side; either mode counts the live rows.

        Numbers order by value with NaN last, text by its bytes.
        """
        return self._ask_keys(lambda question: key_range(question, low, high), last, between, mode)

    def self_join(
        self, *, last: Any = None, between: Any = None, mode: KeyMode = "approximate"
    ) -> CountAnswer:
        """The sum over all keys of the square of their rows (F2); either mode counts every key."""
        return self._ask_keys(self_join, last, between, mode)

    def inner_product(
        self, other: Reader, *, last: Any = None, between: Any = None, mode: KeyMode = "approximate"
    ) -> CountAnswer:
        """The size of the join with another warehouse on the keys, in the same window of both.

        Either mode counts every key of both.
        """

        def join(question: KeyQuestion) -> CountAnswer:
            return other._ask_keys(lambda theirs: inner_product(question, theirs), last, between, mode)

        return self._ask_keys(join, last, between, mode)

    def _ask_keys(self, answer: Callable[[KeyQuestion], T], last: Any, between: Any, mode: Any) -> T:
        mode = check_mode(mode, KEY_MODES)
        return _of_newest(
            self._newest_keys, lambda view: answer(self._key_question(view, last, between, mode))
        )

    def _newest_keys(self) -> KeysView:
        return self._seen(self._snapshot.keys_view)

    def _key_question(self, view: KeysView, last: Any, between: Any, mode: str) -> KeyQuestion:
        options = self._snapshot.options
        window = key_window(view, last, between, options.tick_us)
        return KeyQuestion(
            view=view,
            window=window,
            mode=mode,
            promise=KeyPromise.of(options),
            blocks=self._blocks,
            history=lambda ticks: self._keys.history(view, ticks),
            listed=self._keys.listed,
            live=self._keys.live(view, window, KeyPromise.of(options)),
            live_rows=lambda: self._live_keys(view, window),
        )

    def _live_keys(self, view: KeysView, window: KeyWindow) -> Iterator[KeyRows]:
        return live_key_rows(self._snapshot, view, window.touched, window.since, window.until)

    def _ask(
        self, answer: Callable[[Question], T], measure: str | None, last: Any, between: Any, mode: Any
    ) -> T:
        mode = check_mode(mode, MODES)
        return _of_newest(
            lambda: self._newest(measure), lambda view: answer(self._question(view, last, between, mode))
        )

    def _newest(self, measure: str | None) -> View:
        return self._seen(lambda: self._snapshot.view(measure))

    def _seen(self, see: Callable[[], V]) -> V:
        """A view of the newest data."""
        with self._lock:
            self._snapshot.refresh()
            view = see()
            self._blocks.at(view.root, view.versions["runs"])
            return view

    def _question(self, view: View, last: Any, between: Any, mode: str) -> Question:
        options = self._snapshot.options
        window = choose_window(lambda: tick_range(view), last, between, options.tick_us)
        known = self._memory.of(view, window)
        if known.rows == 0:
            raise empty_window(view, window, known.nulls, options.tick_us)
        source = self._source(view, window)
        return Question(known, source, mode, float(options.eps), shown_window(window, options.tick_us))

    def _source(self, view: View, window: Window) -> Source:
        return Source(self._blocks, lambda: live_values(self._snapshot, view, window))


def _of_newest(newest: Callable[[], V], answer: Callable[[V], T]) -> T:
    """The answer of the newest view; of one newer still where a file went under way."""
    view = newest()
    for _ in range(ATTEMPTS - 1):
        try:
            return answer(view)
        except DamagedWarehouse:
            newer = newest()
            if newer is view:
                raise
            view = newer
    return answer(view)


def _answers(found: list[Any], kind: type[Any]) -> Answers[Any]:
    """Answers of one question, whose scope each of them knows."""
    if not found:
        return Answers((), kind, "nothing was asked")
    return Answers(tuple(found), kind, found[0].scope_text, found[0].scope_facts)


def _hitters(question: KeyQuestion, found: list[HitterAnswer]) -> Answers[HitterAnswer]:
    """Keys that were found, where there may be none, with the scope that was looked at."""
    scope = key_scope(question)
    return Answers(tuple(found), HitterAnswer, scope.scope_text, scope.scope_facts)
