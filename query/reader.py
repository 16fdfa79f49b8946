"""An open warehouse: questions about measures and keys, answered with certified bounds and without a JVM.

Reads have snapshot isolation. A `Reader` refreshes before each question and answers from one immutable view,
so a concurrent load or merge does not affect the answer. If a file of the view is missing because maintenance
deleted it after a merge, the question is answered again from a newer view.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Self, Unpack, cast, overload

from numpy.typing import NDArray

from tidemark.query.answers.by_site import SiteFacts
from tidemark.query.answers.companion_answer import CompanionAnswer
from tidemark.query.answers.extreme_answer import Extreme
from tidemark.query.answers.info import Info
from tidemark.query.answers.measure_answers import (
    Answer,
    Answers,
    CdfAnswer,
    Histogram,
    RankAnswer,
)
from tidemark.query.answers.summary_answer import Summary
from tidemark.query.asking.about import repr_of
from tidemark.query.asking.ask import ask
from tidemark.query.asking.calls import checks_calls
from tidemark.query.asking.companion_questions import CompanionRequest
from tidemark.query.asking.key_reader import KeyReader
from tidemark.query.asking.measure_arguments import GroupOptions, OneOptions
from tidemark.query.asking.measure_questions import MeasureRequest, SpanRequest
from tidemark.query.asking.session import Session
from tidemark.query.quantiles.histograms import Histograms
from tidemark.query.quantiles.summaries import Summaries
from tidemark.query.quantiles.wanted import Extremes, Quantiles, RanksOf, SharesAt
from tidemark.query.reading.asked_window import AskedWindow
from tidemark.query.reading.spending import TimeLimit
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.scalars import is_sequence, plain, plain_all, plain_share
from tidemark.warehouse.columns.ticks import width_us
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import EmptyWindow
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.snapshots.sites import AnySnapshot, Site, refuse_several
from tidemark.warehouse.snapshots.system_tables import Contents


@checks_calls(MeasureRequest.of)
class Reader(KeyReader):
    """The questions to an open warehouse. Safe to share between threads.

    Every parameter takes the scalars, arrays and series of numpy, pandas, Polars and pyarrow as it takes
    Python's values. Values are compared with the stored ones exactly. A time is a datetime, a date or ISO
    text, never a number. A time without a zone is taken as UTC.

    Parameters of all questions:

    measure: the numeric column; by default the first measure of the warehouse. Or an expression over the
        columns, such as "bytes / latency_ms", by a scan.
    last: only the newest rows by event time: a duration such as "7d", counted back from the newest tick that
        has rows and is not later than now. A number of steps if the warehouse has no time column.
    as_of: `last` counts back from this moment (exclusive) instead of the newest tick: last=L, as_of=T is the
        window from T - L to T. Without a time column the number of a step.
    between: (start, end), the end exclusive, None for an open side. Quantile windows are whole ticks; the
        `window` of an answer shows which. Windows of keys may start and end inside a tick, but
        those of `every` are whole ticks.
    mode: for measures "quick" (error <= eps * N; reads blocks only for narrow windows), "accurate" (reads a
        few blocks of history; error 0 while the live rows fit into memory, else <= eps * m) or "exact" (error
        0; reads the live rows from files if they do not fit into memory). For keys "approximate" (error
        <= key_eps * m with probability 1 - key_delta) or "exact" (also reads the live rows).
    where: only rows with these values: a mapping of columns to a value or a list of values, or a condition
        as text, in DuckDB's SQL, such as "distance > 500 AND dest LIKE 'S%'".
    by: one answer for each value of a column, or of several columns; a row with NULL there belongs to none.
        Or of expressions, such as "hour(time)", by a scan.
    top, groups, limit: they select the values of `by`. top: so many values, those with the most rows. groups:
        the values in this list. Otherwise all values; an error if there are more than `limit` (1000 by
        default).
    order: the order of the values of `by`: "value", "rows" or "error", with "-" for the greatest first. With
        `top` the answer has the first groups in this order, for each window of `every`: order="-value",
        top=20 for the slowest twenty. `certain` is True if no later group can belong before this one, by the
        bounds. Equal values stay in the order of the groups; NaN comes last.
    least_rows: groups with fewer rows, N, in the window are left out.
    every: one answer for each part of the window: "1h", "7d". Parts start at multiples of the duration since
        1970 in UTC, weeks on Mondays. Without a time column it is a number of steps.
    width: with `every`: the length of each part, at least `every`, which is the default. Longer parts
        overlap: every="1h", width="24h" for the 24 hours from each hour on. A part is cut at the end of the
        window.
    key: a column, or a list of columns in any order; by default the first key of the warehouse. Values of a
        key of several columns, in the question and in the answers, are tuples in the order of this list.

    If the columns of `where` and `by` together are those of a declared group, questions about measures read a
    few blocks. Any other `where` and `by`, and those of questions about keys, are answered by a scan of
    `events`: exact, and as slow as that. `rows_scanned` of the answer is the number of rows that were read.
    `declare` names the group that would answer the question without a scan.

    All questions raise InputError for invalid arguments, EmptyWindow if a quantile window has no rows, and
    DamagedWarehouse if a file is missing or damaged. Each question first looks for newer data, unless that
    was done less than `max_staleness` seconds ago.
    """

    def __init__(
        self,
        snapshot: AnySnapshot,
        memory: int | None = None,
        progress: Callable[[float], None] | None = None,
        max_staleness: float = 0.0,
    ) -> None:
        super().__init__(Session(snapshot, memory, progress, max_staleness))

    def __repr__(self) -> str:
        return repr_of([site.store.uri for site in self._session.snapshot.sites], self._session.options)

    @property
    def options(self) -> Options:
        """The options of the warehouse as they are now, and its columns."""
        return self._session.newest_options()

    @property
    def identity(self) -> str:
        """An identifier that differs from that of any other warehouse at the same address."""
        return self._session.snapshot.identity

    @property
    def store(self) -> Store:
        """Where the warehouse is; InputError for several warehouses."""
        return self._session.store

    @property
    def sites(self) -> dict[str, Site]:
        """The reader of each of several warehouses, by its name; for a single one by the name ""."""
        return self._session.sites

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The measures; the first one is the default of every question."""
        return tuple(self.options.measures)

    @property
    def key(self) -> Key | None:
        """The first key, the default of questions about keys; None without a key, or without columns yet."""
        return next(iter(self.keys), None)

    @property
    def keys(self) -> tuple[Key, ...]:
        """All keys; groups are keys, too. Empty until the warehouse has columns."""
        return self.options.keys

    @property
    def eps(self) -> float:
        """The promised rank error as a fraction of the rows; `alter` can change it."""
        return float(self._session.options.eps)

    @property
    def tick(self) -> timedelta | None:
        """The width of a tick, the grain of windows; None without a time column (windows count steps)."""
        tick_us = self._session.options.tick_us
        return None if tick_us is None else timedelta(microseconds=tick_us)

    def span(
        self, measure: str | None = None, *, last: Any = None, as_of: Any = None, between: Any = None
    ) -> tuple[Any, Any]:
        """The ticks of the window that may have rows, as (start, end), the end exclusive.

        Returns times, or step numbers without a time column. The end is None if rows may have the last
        possible time (the last microsecond of the year 9999). Raises EmptyWindow if no tick of the data lies
        in the window. Reads no blocks.
        """
        return ask(self._session, SpanRequest(measure, AskedWindow(last, between, as_of)))

    def refresh(self) -> bool:
        """Looks for newer data and returns whether there was any. Every question does so by itself."""
        return self._session.refresh()

    @property
    def seen(self) -> tuple[object, ...]:
        """What the last look at each warehouse found: the same objects until a look finds newer data."""
        return tuple(site.seen for site in self._session.snapshot.sites)

    def pinned(self) -> Self:
        """A reader of the warehouse as it is now. It does not refresh, and shares the caches."""
        return self._with(self._session.pinned())

    def with_progress(self, progress: Callable[[float], None]) -> Self:
        """This reader, with shared caches; `progress` is called with the share of a scan that is done."""
        session = copy.copy(self._session)
        session.progress = progress
        return self._with(session)

    def with_time_limit(
        self, limit: str | timedelta | None, cancelled: Callable[[], bool] | None = None
    ) -> Self:
        """This reader, with shared caches; a question that takes longer is a TimeLimitReached.

        limit: a duration such as "5s"; None for no limit.
        cancelled: is called often, and ends the question where it returns True.

        Questions look at it between the blocks, groups and windows that they read, and interrupt a scan
        within about a quarter of a second.
        """
        session = copy.copy(self._session)
        seconds = None if limit is None else width_us(plain(limit)) / 1e6
        session.time_limit = TimeLimit(seconds, cancelled)
        return self._with(session)

    def _with(self, session: Session) -> Self:
        other = self.twin()
        other._session = session  # noqa: SLF001  an object of this class
        return other

    def twin(self) -> Self:
        """A shallow copy of this reader, which shares its snapshot and caches."""
        return copy.copy(self)

    def by_site(self) -> dict[str, SiteFacts]:
        """Facts about each of several warehouses now, by its name; empty for one, and without values."""
        if len(self._session.snapshot.sites) == 1:
            return {}
        try:
            return self.quantile(0.5, mode="quick").by_site()
        except EmptyWindow:
            return {}

    def contents(self) -> Contents:
        """The batches, steps and runs as of now, with methods to read their rows."""
        refuse_several(self._session.snapshot, "what the tables have")
        return self._session.contents_by_site()[""]

    def contents_by_site(self) -> dict[str, Contents]:
        """The same for each of several warehouses, by its name; for a single one by the name ""."""
        return self._session.contents_by_site()

    def companion(
        self, name: str, *, last: Any = None, as_of: Any = None, between: Any = None
    ) -> CompanionAnswer:
        """The summary of a companion, over history and the live side.

        name: the companion's name, as it was declared when the warehouse was created.

        The window is whole ticks, as those of measures. The answer joins the stored cells of the window. If a
        cell of a run has several ticks and the window cuts it, the rows of the part inside are read from
        `events`: `rows_scanned` says how many. Raises InputError if there is no companion of this name, or if
        the kind of the companion is not registered in this process; EmptyWindow if the window has no rows
        with a value.
        """
        return ask(self._session, CompanionRequest(name, AskedWindow(last, between, as_of)))

    def info(self) -> Info:
        """Facts about the warehouse: columns, grain, span, steps, runs, batches, bytes and table versions.

        `span` goes from the first to the last tick with rows, `last_batches` has the newest ranges of
        batches: see query/asking/about.py. `memory` has the budget of decoded rows in bytes, and how many of
        them are used.
        """
        memory = self._session.memory
        return Info({**self._session.info(), "memory": {"budget": memory.budget, "used": memory.weight}})

    @overload
    def quantile(
        self, phi: Sequence[Any] | NDArray[Any], measure: str | None = None, **options: Unpack[GroupOptions]
    ) -> Answers[Answer]: ...
    @overload
    def quantile(self, phi: Any, measure: str | None = None, **options: Unpack[OneOptions]) -> Answer: ...
    @overload
    def quantile(
        self, phi: Any, measure: str | None = None, **options: Unpack[GroupOptions]
    ) -> Answers[Answer]: ...
    def quantile(
        self, phi: Any, measure: str | None = None, **options: Unpack[GroupOptions]
    ) -> Answer | Answers[Answer]:
        """The phi-quantile: the smallest x with at least ceil(phi * N) rows <= x; phi = 0 is the minimum.

        phi: a number from 0 to 1, both inclusive, or a sequence of them; these share one round of reads.

        Returns one Answer for a number, Answers in the order of the sequence otherwise. A rank among the NaN
        rows has the value NaN. If the live rows do not fit into memory, mode accurate may answer a phi
        differently alone and together with others, because all of them share the blocks that are read; both
        answers keep the promised error.

        Cost: mode quick reads no blocks unless the marks are too coarse for the window. Mode accurate reads
        one or two blocks per run and phi at the usual grain of marks. Mode exact also reads the live rows,
        from files if they do not fit into memory. `blocks_read` of the answer is the number of row groups
        that were read. Many groups, windows or phis may be answered together, then exactly: the
        runs of the window are read whole once, and kept in memory.
        """
        phi = plain_share(phi)
        several = is_sequence(phi)
        wanted = Quantiles.of(phi if several else [phi])
        asked = ask(self._session, MeasureRequest.of(wanted, measure, **options))
        return asked.answers(Answer, one=not several)

    @overload
    def rank(
        self, x: Sequence[Any] | NDArray[Any], measure: str | None = None, **options: Unpack[GroupOptions]
    ) -> Answers[RankAnswer]: ...
    @overload
    def rank(self, x: Any, measure: str | None = None, **options: Unpack[OneOptions]) -> RankAnswer: ...
    @overload
    def rank(
        self, x: Any, measure: str | None = None, **options: Unpack[GroupOptions]
    ) -> Answers[RankAnswer]: ...
    def rank(
        self, x: Any, measure: str | None = None, **options: Unpack[GroupOptions]
    ) -> RankAnswer | Answers[RankAnswer]:
        """The number of rows <= x.

        x: a value of the measure's type, or a sequence of values; these share one round of reads. NaN rows
            are not <= any x.

        Returns one RankAnswer for a value, Answers in the order of the sequence otherwise. The cost is that
        of `quantile`: mode accurate reads at most one or two blocks per run and value.
        """
        x = plain_all(x)
        several = is_sequence(x)
        wanted = RanksOf(list(x) if several else [x])
        asked = ask(self._session, MeasureRequest.of(wanted, measure, **options))
        return asked.answers(RankAnswer, one=not several)

    @overload
    def cdf(
        self, x: Sequence[Any] | NDArray[Any], measure: str | None = None, **options: Unpack[GroupOptions]
    ) -> Answers[CdfAnswer]: ...
    @overload
    def cdf(self, x: Any, measure: str | None = None, **options: Unpack[OneOptions]) -> CdfAnswer: ...
    @overload
    def cdf(
        self, x: Any, measure: str | None = None, **options: Unpack[GroupOptions]
    ) -> Answers[CdfAnswer]: ...
    def cdf(
        self, x: Any, measure: str | None = None, **options: Unpack[GroupOptions]
    ) -> CdfAnswer | Answers[CdfAnswer]:
        """The share of the N rows that are <= x, from 0 to 1.

        x: a value of the measure's type, or a sequence of values; these share one round of reads.

        Returns one CdfAnswer for a value, Answers in the order of the sequence otherwise. The cost is that of
        `rank`.
        """
        x = plain_all(x)
        several = is_sequence(x)
        wanted = SharesAt(list(x) if several else [x])
        asked = ask(self._session, MeasureRequest.of(wanted, measure, **options))
        return asked.answers(CdfAnswer, one=not several)

    @overload
    def histogram(
        self, bins: Any = 20, measure: str | None = None, **options: Unpack[OneOptions]
    ) -> Histogram: ...
    @overload
    def histogram(
        self, bins: Any = 20, measure: str | None = None, **options: Unpack[GroupOptions]
    ) -> Answers[Histogram]: ...
    def histogram(
        self, bins: Any = 20, measure: str | None = None, **options: Unpack[GroupOptions]
    ) -> Histogram | Answers[Histogram]:
        """Counts of rows in bins.

        bins: the number of bins of equal width from the least to the greatest number; or two or more edges,
            ascending. A bin includes its left edge; only the last bin includes its right edge.

        NaN and NULL rows are in no bin. A group or a window without numbers has no bins of equal width; if
        the question is about one histogram, EmptyWindow is raised. The cost is that of `rank` for all edges
        at once.
        """
        wanted = Histograms.of(plain_all(bins))
        asked = ask(self._session, MeasureRequest.of(wanted, measure, **options))
        answer: Histogram | Answers[Histogram] = asked.answers(Histogram, one=True)
        if isinstance(answer, Histogram) and not answer.bins:
            raise EmptyWindow(
                f"the window has no numbers of {answer.measure!r}: its {answer.nans:,} rows are NaN."
            )
        return answer

    def largest(
        self, k: int = 10, measure: str | None = None, **options: Unpack[GroupOptions]
    ) -> Answers[Extreme]:
        """The k greatest numbers, greatest first, of each group and window; fewer if there are fewer numbers.

        k: a whole number of at least 1.

        Equal numbers are listed several times; NaN and NULL are no numbers, infinities are. The answers are
        exact in every mode. `order` takes "rows" and "-rows" alone. EmptyWindow if no row has a number. The
        cost is that of `quantile` in mode exact: one or two blocks per run, because the ranks are
        consecutive. For a declared group, its own runs are read.
        """
        return self._extremes(Extremes.of(plain(k), largest=True), measure, options)

    def smallest(
        self, k: int = 10, measure: str | None = None, **options: Unpack[GroupOptions]
    ) -> Answers[Extreme]:
        """The k least numbers, least first; all else as for `largest`."""
        return self._extremes(Extremes.of(plain(k), largest=False), measure, options)

    def _extremes(self, wanted: Extremes, measure: str | None, options: GroupOptions) -> Answers[Extreme]:
        asked = ask(self._session, MeasureRequest.of(wanted, measure, **options))
        answers = cast("Answers[Extreme]", asked.answers(Extreme, one=False))
        if not answers and not (asked.by or asked.windows):
            raise EmptyWindow("the window has no numbers: all of its rows are NaN.")
        return answers

    @overload
    def summary(self, measure: str | None = None, **options: Unpack[OneOptions]) -> Summary: ...
    @overload
    def summary(self, measure: str | None = None, **options: Unpack[GroupOptions]) -> Answers[Summary]: ...
    def summary(
        self, measure: str | None = None, **options: Unpack[GroupOptions]
    ) -> Summary | Answers[Summary]:
        """Count, sum, mean, least and greatest number, variance and standard deviation of the rows.

        NaN, infinities and NULL are counted apart. The answer is exact in every mode: sums of integers and
        decimals are whole, those of doubles are rounded once, so they depend neither on the order of the rows
        nor on how these were loaded. `order` takes "rows" and "-rows" alone.

        Cost: without `where` and `by` the sums of each run's ticks, which are read once, and one or two
        blocks per run for the least and the greatest number of a window. For a declared group, its runs may
        be read whole. Otherwise, and where a run was written before there were sums, a scan of the rows of
        the window in `events`; `rows_scanned` says how many.
        """
        asked = ask(self._session, MeasureRequest.of(Summaries(), measure, **options))
        answer: Summary | Answers[Summary] = asked.answers(Summary, one=True)
        return answer
