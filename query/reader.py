"""An open warehouse: questions about measures and keys, answered with certified bounds and without a JVM.

Reads have snapshot isolation. A `Reader` refreshes before each question and answers from one immutable view,
so a concurrent load or merge does not affect the answer. If a file of the view is missing because maintenance
deleted it after a merge, the question is answered again from a newer view.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, Generic, Literal, Self, TypedDict, TypeVar, Unpack, cast, overload

from numpy.typing import NDArray

from tidemark.query.answers.info import Info
from tidemark.query.answers.key_answers import CountAnswer, FrequencyAnswer, HitterAnswer
from tidemark.query.answers.measure_answers import (
    Answer,
    Answers,
    CdfAnswer,
    Histogram,
    MeasureScope,
    RankAnswer,
)
from tidemark.query.answers.rendering import window_text
from tidemark.query.groups.group_choice import GroupArguments, GroupChoice, choose_group
from tidemark.query.groups.group_questions import GroupReader
from tidemark.query.groups.group_slices import Group
from tidemark.query.keys.frequencies import MODES as KEY_MODES
from tidemark.query.keys.frequencies import (
    KeyQuestion,
    frequencies,
    heavy_hitters,
    inner_product,
    key_counts,
    key_range,
    key_scope,
    self_join,
    top,
)
from tidemark.query.keys.key_cache import KeyCache
from tidemark.query.keys.key_windows import KeyWindow, key_window
from tidemark.query.quantiles.histograms import check_bins, histogram
from tidemark.query.quantiles.questions import (
    Question,
    cdf,
    check_mode,
    check_phis,
    is_sequence,
    quantiles,
    ranks,
)
from tidemark.query.quantiles.rank_search import MODES, Source
from tidemark.query.quantiles.window_bounds import SpanCache, WindowBoundsCache
from tidemark.query.reading.block_reader import BlockReader
from tidemark.query.reading.live_cache import LiveCache
from tidemark.query.reading.memory_cache import LRUCache
from tidemark.query.reading.windows import choose_window, empty_window, shown_window, tick_range
from tidemark.warehouse.columns.keys import Key, Name
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.ledger.key_summaries import KeyPromise
from tidemark.warehouse.projections.key_rows import KeyRows
from tidemark.warehouse.projections.sorted_groups import SortedGroups
from tidemark.warehouse.projections.sorted_values import SortedValues
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.snapshots.live_rows import live_key_rows
from tidemark.warehouse.snapshots.snapshot import GroupView, KeysView, Snapshot, View
from tidemark.warehouse.snapshots.snapshot_reader import SnapshotReader
from tidemark.warehouse.snapshots.system_tables import Contents

Mode = Literal["quick", "accurate", "exact"]
KeyMode = Literal["approximate", "exact"]
T = TypeVar("T")
M = TypeVar("M", bound=MeasureScope)
V = TypeVar("V", View, KeysView, GroupView)

DEFAULT_MEMORY = 2**28
CACHED_SIZES = 2**18  # groups whose numbers of rows are cached
ATTEMPTS = 3  # files missing from three views in a row are damage, not maintenance


class QuestionOptions(TypedDict, total=False):
    """The keyword parameters of questions about measures, without `by`."""

    last: Any
    between: Any
    mode: Mode
    where: Any
    top: int | None
    groups: Any
    limit: int | None


class GroupOptions(QuestionOptions, total=False):
    """The keyword parameters of questions about measures."""

    by: Any


class Reader:
    """The questions to an open warehouse. Safe to share between threads.

    Parameters of all questions:

    measure: the numeric column; by default the first measure of the warehouse.
    last: only the newest rows by event time: a duration such as "7d", counted back from the newest tick of
        the data. A number of steps if the warehouse has no time column.
    between: (start, end), the end exclusive, None for an open side. Quantile windows are whole ticks; the
        `window` of an answer shows which. Windows of keys may start and end inside a tick.
    mode: for measures "quick" (error <= eps * N, from memory), "accurate" (error <= eps * m, reads a few
        blocks of history) or "exact" (error 0, also reads the live rows). For keys "approximate" (error <=
        key_eps * m with probability 1 - key_delta) or "exact" (also reads the live rows).

    All questions raise InputError for invalid arguments, EmptyWindow if a quantile window has no rows, and
    DamagedWarehouse if a file is missing or damaged. Each question first looks for newer data.
    """

    def __init__(self, snapshot: SnapshotReader | Snapshot, memory: int = DEFAULT_MEMORY) -> None:
        self._snapshot = snapshot
        self._blocks = BlockReader(snapshot.store)
        spans = SpanCache()
        self._bounds_cache = WindowBoundsCache(spans)
        self._keys = KeyCache(snapshot.store, self._blocks)
        self._memory: LRUCache[Any] = LRUCache(memory, lambda value: value.nbytes)
        self._live = LiveCache(self._memory)
        self._sizes: LRUCache[list[tuple[Group, int]]] = LRUCache(CACHED_SIZES, len)
        self._groups = GroupReader(self._blocks, self._memory, self._live, spans)
        self._lock = threading.Lock()

    @property
    def options(self) -> Options:
        """The options that the warehouse was created with, and its columns."""
        return self._snapshot.options

    @property
    def identity(self) -> str:
        """An identifier that differs from that of any other warehouse at the same address."""
        return self._snapshot.identity

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The measures; the first one is the default of every question."""
        return tuple(self._snapshot.options.measures)

    @property
    def key(self) -> Key | None:
        """The first key, the default of questions about keys; None without a key, or without columns yet."""
        return next(iter(self.keys), None)

    @property
    def keys(self) -> tuple[Key, ...]:
        """All keys; groups are keys, too. Empty until the warehouse has columns."""
        return self._snapshot.options.keys

    @property
    def eps(self) -> float:
        """The promised rank error as a fraction of the rows, fixed when the warehouse was created."""
        return float(self._snapshot.options.eps)

    @property
    def tick(self) -> timedelta | None:
        """The width of a tick, the grain of windows; None without a time column (windows count steps)."""
        tick_us = self._snapshot.options.tick_us
        return None if tick_us is None else timedelta(microseconds=tick_us)

    def span(self, measure: str | None = None, *, last: Any = None, between: Any = None) -> tuple[Any, Any]:
        """The ticks of the window that may have rows, as (start, end), the end exclusive.

        Returns times, or step numbers without a time column. Raises EmptyWindow if no tick of the data lies
        in the window. Reads no blocks.
        """
        view, tick_us = self._newest_view(measure), self._snapshot.options.tick_us
        ticks = tick_range(view)
        window = choose_window(lambda: ticks, last, between, tick_us)
        if ticks is None or window.misses(*ticks):
            raise empty_window(view, window, 0, tick_us)
        covered = Window(max(window.start, ticks[0]), min(window.stop, ticks[1] + 1))
        start, end = shown_window(covered, tick_us) or (None, None)
        return start, end

    def refresh(self) -> bool:
        """Looks for newer data and returns whether there was any. Every question does so by itself."""
        with self._lock:
            return bool(self._snapshot.refresh())

    def pinned(self) -> Self:
        """A reader of the warehouse as it is now. It does not refresh, and shares the caches."""
        other = self.twin()
        with self._lock:
            self._snapshot.refresh()
            other._snapshot = self._snapshot.pinned()  # noqa: SLF001  an object of this class
        return other

    def twin(self) -> Self:
        """A shallow copy of this reader, which shares its snapshot and caches."""
        return copy.copy(self)

    def contents(self) -> Contents:
        """The batches, steps and runs as of now, with methods to read their rows."""
        with self._lock:
            self._snapshot.refresh()
            return self._snapshot.contents()

    def info(self) -> Info:
        """Facts about the warehouse: steps, runs by level, live batches, bytes and table versions."""
        with self._lock:
            self._snapshot.refresh()
            return Info(self._snapshot.info())

    @overload
    def quantile(
        self, phi: Sequence[Any] | NDArray[Any], measure: str | None = None, **options: Unpack[GroupOptions]
    ) -> Answers[Answer]: ...
    @overload
    def quantile(
        self, phi: Any, measure: str | None = None, *, by: None = None, **options: Unpack[QuestionOptions]
    ) -> Answer: ...
    @overload
    def quantile(
        self, phi: Any, measure: str | None = None, **options: Unpack[GroupOptions]
    ) -> Answers[Answer]: ...
    def quantile(  # noqa: PLR0913  the parameters of all questions about measures
        self,
        phi: Any,
        measure: str | None = None,
        *,
        last: Any = None,
        between: Any = None,
        mode: Mode = "accurate",
        where: Any = None,
        by: Any = None,
        top: int | None = None,
        groups: Any = None,
        limit: int | None = None,
    ) -> Answer | Answers[Answer]:
        """The phi-quantile: the smallest x with at least ceil(phi * N) rows <= x; phi = 0 is the minimum.

        phi: a number from 0 to 1, both inclusive, or a sequence of them; these share one round of reads.

        Returns one Answer for a number, Answers in the order of the sequence otherwise. A rank among the NaN
        rows has the value NaN.

        Cost: mode quick reads no blocks unless the marks are too coarse for the window. Mode accurate reads
        one or two blocks per run and phi at the usual grain of marks. Mode exact also scans the live rows.
        `blocks_read` of the answer is the number of row groups that were read.
        """
        phis = check_phis(phi if is_sequence(phi) else [phi])
        arguments = GroupArguments(where, by, top, groups, limit)
        asked = self._ask(lambda question: quantiles(question, phis), measure, last, between, mode, arguments)
        return asked.answers(Answer, one=not is_sequence(phi))

    @overload
    def rank(
        self, x: Sequence[Any] | NDArray[Any], measure: str | None = None, **options: Unpack[GroupOptions]
    ) -> Answers[RankAnswer]: ...
    @overload
    def rank(
        self, x: Any, measure: str | None = None, *, by: None = None, **options: Unpack[QuestionOptions]
    ) -> RankAnswer: ...
    @overload
    def rank(
        self, x: Any, measure: str | None = None, **options: Unpack[GroupOptions]
    ) -> Answers[RankAnswer]: ...
    def rank(  # noqa: PLR0913  the parameters of all questions about measures
        self,
        x: Any,
        measure: str | None = None,
        *,
        last: Any = None,
        between: Any = None,
        mode: Mode = "accurate",
        where: Any = None,
        by: Any = None,
        top: int | None = None,
        groups: Any = None,
        limit: int | None = None,
    ) -> RankAnswer | Answers[RankAnswer]:
        """The number of rows <= x.

        x: a value of the measure's type, or a sequence of values; these share one round of reads. NaN rows
            are not <= any x.

        Returns one RankAnswer for a value, Answers in the order of the sequence otherwise. The cost is that
        of `quantile`: mode accurate reads at most one or two blocks per run and value.
        """
        points = list(x) if is_sequence(x) else [x]
        arguments = GroupArguments(where, by, top, groups, limit)
        asked = self._ask(lambda question: ranks(question, points), measure, last, between, mode, arguments)
        return asked.answers(RankAnswer, one=not is_sequence(x))

    @overload
    def cdf(
        self, x: Sequence[Any] | NDArray[Any], measure: str | None = None, **options: Unpack[GroupOptions]
    ) -> Answers[CdfAnswer]: ...
    @overload
    def cdf(
        self, x: Any, measure: str | None = None, *, by: None = None, **options: Unpack[QuestionOptions]
    ) -> CdfAnswer: ...
    @overload
    def cdf(
        self, x: Any, measure: str | None = None, **options: Unpack[GroupOptions]
    ) -> Answers[CdfAnswer]: ...
    def cdf(  # noqa: PLR0913  the parameters of all questions about measures
        self,
        x: Any,
        measure: str | None = None,
        *,
        last: Any = None,
        between: Any = None,
        mode: Mode = "accurate",
        where: Any = None,
        by: Any = None,
        top: int | None = None,
        groups: Any = None,
        limit: int | None = None,
    ) -> CdfAnswer | Answers[CdfAnswer]:
        """The share of the N rows that are <= x, from 0 to 1.

        x: a value of the measure's type, or a sequence of values; these share one round of reads.

        Returns one CdfAnswer for a value, Answers in the order of the sequence otherwise. The cost is that of
        `rank`.
        """
        points = list(x) if is_sequence(x) else [x]
        arguments = GroupArguments(where, by, top, groups, limit)
        asked = self._ask(lambda question: cdf(question, points), measure, last, between, mode, arguments)
        return asked.answers(CdfAnswer, one=not is_sequence(x))

    @overload
    def histogram(
        self,
        bins: Any = 20,
        measure: str | None = None,
        *,
        by: None = None,
        **options: Unpack[QuestionOptions],
    ) -> Histogram: ...
    @overload
    def histogram(
        self,
        bins: Any = 20,
        measure: str | None = None,
        *,
        by: str | Sequence[str],
        **options: Unpack[QuestionOptions],
    ) -> Answers[Histogram]: ...
    def histogram(  # noqa: PLR0913  the parameters of all questions about measures
        self,
        bins: Any = 20,
        measure: str | None = None,
        *,
        last: Any = None,
        between: Any = None,
        mode: Mode = "accurate",
        where: Any = None,
        by: Any = None,
        top: int | None = None,
        groups: Any = None,
        limit: int | None = None,
    ) -> Histogram | Answers[Histogram]:
        """Counts of rows in bins.

        bins: the number of bins of equal width from the least to the greatest number; or two or more edges,
            ascending. A bin includes its left edge; only the last bin includes its right edge.

        NaN and NULL rows are in no bin. The cost is that of `rank` for all edges at once.
        """
        checked_bins = check_bins(bins)
        arguments = GroupArguments(where, by, top, groups, limit)
        asked = self._ask(
            lambda question: [histogram(question, checked_bins)], measure, last, between, mode, arguments
        )
        return asked.answers(Histogram, one=True)

    def frequency(
        self,
        value: Any,
        *,
        key: Any = None,
        last: Any = None,
        between: Any = None,
        mode: KeyMode = "approximate",
    ) -> FrequencyAnswer | Answers[FrequencyAnswer]:
        """The number of rows that have the key.

        value: a value of the key column's type, or a sequence of values; these share one round of reads. A
            value of a key of several columns is a tuple, so a sequence of them is a list of tuples.

        Returns one FrequencyAnswer for a value, Answers in the order of the sequence otherwise. A key that no
        row has counts 0. Reads one or two blocks per run and key, and more only if a key fills more blocks.
        Raises InputError if the warehouse has no key.
        """
        several = is_sequence(value) and not (isinstance(value, tuple) and self._has_parts(key))
        values = list(value) if several else [value]
        answers = self._ask_keys(lambda question: frequencies(question, values), key, last, between, mode)
        return _answers_of(answers, FrequencyAnswer) if several else answers[0]

    def heavy_hitters(
        self,
        phi: Any,
        *,
        key: Any = None,
        last: Any = None,
        between: Any = None,
        mode: KeyMode = "approximate",
    ) -> Answers[HitterAnswer]:
        """Every key that has at least phi of the rows with a key, most rows first.

        phi: the share of rows, 0 < phi <= 1.

        No such key is missing. A key that may be below phi has `certain` False. Reads the blocks of
        candidates that the marks do not count exactly; scans all blocks of the keys if phi is smaller than
        the marks' lists reach.
        """
        return self._ask_keys(
            lambda question: _hitter_answers(question, heavy_hitters(question, phi)), key, last, between, mode
        )

    def top(
        self,
        k: int = 10,
        *,
        key: Any = None,
        last: Any = None,
        between: Any = None,
        mode: KeyMode = "approximate",
    ) -> Answers[HitterAnswer]:
        """The k keys with the most rows, most rows first; fewer if the window has fewer keys.

        k: a whole number of at least 1.

        `certain` of a key means that no omitted key has more rows. The cost is that of `heavy_hitters`.
        """
        return self._ask_keys(
            lambda question: _hitter_answers(question, top(question, k)), key, last, between, mode
        )

    def key_range(
        self,
        low: Any,
        high: Any,
        *,
        key: Any = None,
        last: Any = None,
        between: Any = None,
        mode: KeyMode = "approximate",
    ) -> CountAnswer:
        """The number of rows with low <= key < high; both modes count the live rows.

        low, high: of the key column's type, None for an open side. Numbers are ordered by value with NaN
            last, text is ordered by its bytes.

        Reads two blocks per run that the window covers, else every block of the range, and the live rows.
        """
        return self._ask_keys(lambda question: key_range(question, low, high), key, last, between, mode)

    def self_join(
        self,
        *,
        key: Any = None,
        last: Any = None,
        between: Any = None,
        mode: KeyMode = "approximate",
    ) -> CountAnswer:
        """The sum over all keys of their rows squared (F2); both modes scan all blocks and live rows."""
        return self._ask_keys(self_join, key, last, between, mode)

    def inner_product(
        self,
        other: Reader,
        *,
        key: Any = None,
        last: Any = None,
        between: Any = None,
        mode: KeyMode = "approximate",
    ) -> CountAnswer:
        """The size of the join with another warehouse on the keys, with the same window in both.

        other: a reader of a warehouse whose key has the same type; InputError otherwise.

        Both modes scan all blocks and live rows of both warehouses. The answer has the scope of this one.
        """

        def join(question: KeyQuestion) -> CountAnswer:
            return other._ask_keys(
                lambda other_question: inner_product(question, other_question), key, last, between, mode
            )

        return self._ask_keys(join, key, last, between, mode)

    def _has_parts(self, key: Any) -> bool:
        """Whether the key has several columns."""
        return len(self._snapshot.options.key_count(key).key.parts) > 1

    def _ask_keys(
        self, answer: Callable[[KeyQuestion], T], key: Any, last: Any, between: Any, mode: Any
    ) -> T:
        mode = check_mode(mode, KEY_MODES)
        tick_us = self._snapshot.options.tick_us
        return _answer_from_newest(
            lambda: self._newest_keys_view(key),
            lambda view: answer(self._key_question(view, key_window(view, last, between, tick_us), mode)),
        )

    def _newest_keys_view(self, key: Any = None) -> KeysView:
        return self._refreshed_view(lambda: self._snapshot.keys_view(key))

    def _key_question(self, view: KeysView, window: KeyWindow, mode: str) -> KeyQuestion:
        options = self._snapshot.options
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
        if window.partial_ticks:  # decoded rows have ticks alone
            return live_key_rows(self._snapshot, view, window.overlapping, window.since, window.until)
        live = self._live.rows(self._snapshot, view.projection, view.batches, view.live_counts)
        return (part.rows.within(window.overlapping) for part in live)

    def _ask(
        self,
        answer: Callable[[Question], list[M]],
        measure: str | None,
        last: Any,
        between: Any,
        mode: Any,
        arguments: GroupArguments,
    ) -> Asked[M]:
        mode = check_mode(mode, MODES)
        if arguments.check():
            return self._ask_groups(answer, measure, last, between, mode, arguments)
        answers = _answer_from_newest(
            lambda: self._newest_view(measure), lambda view: answer(self._question(view, last, between, mode))
        )
        return Asked([answers], ())

    def _ask_groups(
        self,
        answer: Callable[[Question], list[M]],
        measure: str | None,
        last: Any,
        between: Any,
        mode: str,
        arguments: GroupArguments,
    ) -> Asked[M]:
        options = self._snapshot.options
        column = options.measure(measure)  # checked first: without columns there are no groups
        choice = choose_group(options, arguments)
        projection = SortedGroups(choice.keys, column)

        def answer_view(view: GroupView) -> list[list[M]]:
            window = choose_window(lambda: tick_range(view), last, between, options.tick_us)
            questions = self._groups.questions(
                self._snapshot,
                view,
                choice,
                window,
                lambda k: self._group_sizes(choice, window, k),
                partial(
                    Question,
                    mode=mode,
                    eps=float(options.eps),
                    window=shown_window(window, options.tick_us),
                ),
            )
            if not choice.by and not questions[0].bounds.rows:
                raise empty_window(view, window, questions[0].bounds.nulls, options.tick_us, choice.shown(()))
            return [answer(question) for question in questions]

        answers = _answer_from_newest(
            lambda: self._refreshed_view(lambda: self._snapshot.group_view(projection)), answer_view
        )
        return Asked(answers, tuple(key.name for key in choice.by))

    def _group_sizes(self, choice: GroupChoice, window: Window, k: int | None) -> list[tuple[Group, int]]:
        """The groups that have rows in the window, with the number of their rows; with k the k largest."""
        view = self._newest_keys_view([key.name for key in choice.keys])
        shown = shown_window(window, self._snapshot.options.tick_us)
        question = self._key_question(view, KeyWindow(window, (), shown), "exact")

        def compute() -> list[tuple[Group, int]]:
            if k is None:
                counts = key_counts(question)
            else:
                counts = [(hitter.value, hitter.count) for hitter in top(question, k)]
            places = [view.key.columns.index(key.name) for key in choice.keys]
            groups = []
            for value, rows in counts:
                names = view.key.names_in(cast("Name", view.key.name_of(value)))
                groups.append((tuple(names[place] for place in places), rows))
            return groups

        return self._sizes.get((window, k), compute, topic=view.root, sources=(view,))

    def _newest_view(self, measure: str | None) -> View:
        return self._refreshed_view(lambda: self._snapshot.view(measure))

    def _refreshed_view(self, view_of: Callable[[], V]) -> V:
        """A view after a refresh; files of older table versions are closed."""
        with self._lock:
            self._snapshot.refresh()
            view = view_of()
            self._blocks.use_version(view.root, view.versions["runs"])
            return view

    def _question(self, view: View, last: Any, between: Any, mode: str) -> Question:
        options = self._snapshot.options
        window = choose_window(lambda: tick_range(view), last, between, options.tick_us)
        bounds = self._bounds_cache.get(view, window)
        if bounds.rows == 0:
            raise empty_window(view, window, bounds.nulls, options.tick_us)
        source = self._source(view, window)
        return Question(bounds, source, mode, float(options.eps), shown_window(window, options.tick_us))

    def _source(self, view: View, window: Window) -> Source:
        def live_values() -> Iterator[NDArray[Any]]:
            projection = SortedValues(view.measure)
            for part in self._live.rows(self._snapshot, projection, view.batches, view.live_counts):
                inside = window.holds(part.rows.ticks)
                yield part.rows.values if inside.all() else part.rows.values[inside]

        return Source(self._blocks, live_values)


def _answer_from_newest(newest: Callable[[], V], answer: Callable[[V], T]) -> T:
    """The answer from the newest view; if a file is missing, from newer views, ATTEMPTS in all."""
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


@dataclass(frozen=True, slots=True)
class Asked(Generic[M]):
    """The answers of one question: a list for each group, and the columns of `by`.

    Without `by` there is one list.
    """

    groups: list[list[M]]
    by: tuple[str, ...]

    def answers(self, kind: type[Any], *, one: bool) -> M | Answers[M]:
        """The answers as the caller gets them: `one` answer alone, unless there is one for each group."""
        answers = [answer for group in self.groups for answer in group]
        if not self.by:
            return answers[0] if one else _answers_of(answers, kind)
        found = replace(_answers_of(answers, kind), by=self.by)
        if not answers:
            return found
        text = f"{answers[0].column} by {', '.join(self.by)}, {window_text(answers[0].window)}"
        own = ("N", "n", "m", "nans", "nulls", "group", "certain")
        facts = {name: fact for name, fact in found.facts.items() if name not in own}
        return replace(found, caption=f"{text}: {len(self.groups):,} groups", facts=facts)


def _answers_of(answers: list[Any], kind: type[Any]) -> Answers[Any]:
    """The answers of one call as a sequence; its scope is that of the first answer."""
    if not answers:
        return Answers((), kind, "nothing was asked")
    return Answers(tuple(answers), kind, answers[0].scope_text, answers[0].scope_facts)


def _hitter_answers(question: KeyQuestion, hitters: list[HitterAnswer]) -> Answers[HitterAnswer]:
    """Frequent keys as a sequence with the scope of the question; there may be none."""
    scope = key_scope(question)
    return Answers(tuple(hitters), HitterAnswer, scope.scope_text, scope.scope_facts)
