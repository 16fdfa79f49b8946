"""The questions about keys: rows of a key, frequent keys, numbers of distinct keys, persistent keys.

Questions with `where` or `by` are scans of `events` (scanned_keys.py), exact in every mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, TypeVar, Unpack, cast, overload

from tidemark.query.answers.distinct_answers import DistinctAnswer, OverlapAnswer
from tidemark.query.answers.key_answers import (
    CountAnswer,
    FrequencyAnswer,
    HitterAnswer,
    KeyScope,
    PrefixAnswer,
)
from tidemark.query.answers.measure_answers import Answers
from tidemark.query.answers.persistence_answers import PersistenceAnswer, PersistentAnswer
from tidemark.query.answers.plan import Plan
from tidemark.query.asking.ask import ask
from tidemark.query.asking.asked import Asked, answers_of
from tidemark.query.asking.calls import checks_calls
from tidemark.query.asking.key_questions import (
    Join,
    KeyGroupOptions,
    KeyOptions,
    KeyPartOptions,
    KeyRequest,
    OneKeyOptions,
)
from tidemark.query.asking.session import Session
from tidemark.query.keys.distinct_keys import Distinct, NewKeys, Overlap
from tidemark.query.keys.frequencies import Frequencies, HeavyHitters, KeyRange, SelfJoin, Top
from tidemark.query.keys.hierarchy import Hierarchy
from tidemark.query.keys.persistent_keys import Persistence, Persistent
from tidemark.query.keys.planned_scan import PlannedScan
from tidemark.query.reading.asked_window import AskedWindow
from tidemark.query.reading.modes import KeyMode
from tidemark.query.scans.computed import shown_names
from tidemark.warehouse.columns.scalars import plain, plain_all, plain_share
from tidemark.warehouse.errors import InputError, shortened

S = TypeVar("S", bound=KeyScope)


@checks_calls(KeyRequest.of)
class KeyReader:
    """The questions about keys; their parameters are described at `Reader`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @overload
    def frequency(self, value: Any, **options: Unpack[OneKeyOptions]) -> Any: ...
    @overload
    def frequency(self, value: Any, **options: Unpack[KeyGroupOptions]) -> Answers[FrequencyAnswer]: ...
    def frequency(
        self, value: Any, **options: Unpack[KeyGroupOptions]
    ) -> FrequencyAnswer | Answers[FrequencyAnswer]:
        """The number of rows that have the key.

        value: a value of the key column's type, or a sequence of values; these share one round of reads. A
            value of a key of several columns is a tuple, so a sequence of them is a list of tuples.

        Returns one FrequencyAnswer for a value, Answers in the order of the sequence otherwise. A key that no
        row has counts 0. Reads one or two blocks per run and key, and more only if a key fills more blocks.
        Raises InputError if the warehouse has no key.
        """
        request = KeyRequest.of(Frequencies(plain_all(value)), **options)
        results = ask(self._session, request)
        lists = [answers for answers, _ in results]
        asked = self._asked(list(chain.from_iterable(lists)), len(lists), request)
        return asked.answers(FrequencyAnswer, one=not any(several for _, several in results))

    def heavy_hitters(self, phi: Any, **options: Unpack[KeyGroupOptions]) -> Answers[HitterAnswer]:
        """Every key that has at least phi of the rows with a key, most rows first.

        phi: the share of rows, 0 < phi <= 1.

        No such key is missing. A key that may be below phi has `certain` False. Reads the blocks of
        candidates that the marks do not count exactly. If phi is so small that the lists in the marks may
        lack such a key, all blocks of the keys are scanned.
        """
        return self._listed(HitterAnswer, KeyRequest.of(HeavyHitters(plain_share(phi)), **options))

    def top(self, k: int = 10, **options: Unpack[KeyGroupOptions]) -> Answers[HitterAnswer]:
        """The k keys with the most rows, most rows first; fewer if the window has fewer keys.

        k: a whole number of at least 1.

        `certain` of a key means that no omitted key has more rows. The cost is that of `heavy_hitters`.
        """
        return self._listed(HitterAnswer, KeyRequest.of(Top(plain(k)), **options))

    def hierarchy(
        self, phi: Any, separator: Any = None, **options: Unpack[KeyPartOptions]
    ) -> Answers[PrefixAnswer]:
        """Every prefix of keys that has at least phi of the rows with a key, in the order of the prefixes.

        phi: the share of rows, 0 < phi <= 1.
        separator: text that ends a prefix of a key that is text, such as "." of addresses or "/" of paths;
            the key itself is the last of its prefixes. None for dates and times, whose prefixes are the year,
            the month, the day, the hour, the minute and the second, in UTC.

        No such prefix is missing. `rest` counts the rows of a prefix that belong to no longer prefix among
        the answers. Counts are exact in both modes, unless the window cuts a tick. If the window covers its
        runs whole, the marks say which prefixes may have the share, and only the blocks at their ends and the
        live rows are read; otherwise all blocks of the keys are scanned.
        `rows_scanned` says how many rows were read.
        """
        return self._listed(
            PrefixAnswer, KeyRequest.of(Hierarchy(plain_share(phi), plain(separator)), **options)
        )

    @overload
    def key_range(
        self, low: Any, high: Any, *, every: None = None, **options: Unpack[KeyOptions]
    ) -> CountAnswer: ...
    @overload
    def key_range(
        self, low: Any, high: Any, *, every: Any, **options: Unpack[KeyOptions]
    ) -> Answers[CountAnswer]: ...
    def key_range(
        self, low: Any, high: Any, **options: Unpack[KeyPartOptions]
    ) -> CountAnswer | Answers[CountAnswer]:
        """The number of rows with low <= key < high; both modes count the live rows.

        low, high: of the key column's type, None for an open side. Numbers are ordered by value with NaN
            last, text is ordered by its bytes.

        Reads two blocks per run that the window covers, else every block of the range, and the live rows.
        """
        return self._one(CountAnswer, KeyRequest.of(KeyRange(plain_all(low), plain_all(high)), **options))

    @overload
    def self_join(self, **options: Unpack[OneKeyOptions]) -> CountAnswer: ...
    @overload
    def self_join(self, **options: Unpack[KeyGroupOptions]) -> Answers[CountAnswer]: ...
    def self_join(self, **options: Unpack[KeyGroupOptions]) -> CountAnswer | Answers[CountAnswer]:
        """The sum over all keys of their rows squared (F2); both modes scan all blocks and live rows."""
        return self._one(CountAnswer, KeyRequest.of(SelfJoin(), **options))

    def inner_product(self, other: KeyReader, **options: Unpack[KeyOptions]) -> CountAnswer:
        """The size of the join with another warehouse on the keys, with the same window in both.

        other: a reader of a warehouse whose key has the same type; InputError otherwise.

        Both modes scan all blocks and live rows of both warehouses. The answer has the scope of this one.
        """
        if not isinstance(other, KeyReader):
            raise InputError(
                f"other must be a reader of a warehouse, as query.open returns it, got {shortened(other)}."
            )
        (answer,) = ask(self._session, KeyRequest.of(Join(other._session, options), **options))
        return answer

    @overload
    def distinct(self, **options: Unpack[OneKeyOptions]) -> DistinctAnswer: ...
    @overload
    def distinct(self, **options: Unpack[KeyGroupOptions]) -> Answers[DistinctAnswer]: ...
    def distinct(self, **options: Unpack[KeyGroupOptions]) -> DistinctAnswer | Answers[DistinctAnswer]:
        """The number of distinct keys; NULL is no key.

        Approximate answers come from samples of keys in memory, with probable and certain bounds; the error
        is a share of the keys that the largest run of the window does not have. Exact answers scan all blocks
        of the keys.
        """
        return self._one(DistinctAnswer, KeyRequest.of(Distinct(), **options))

    def scan_plan(self, **options: Unpack[KeyOptions]) -> Plan:
        """The files, blocks, rows and bytes that a scan of all keys of a window would read.

        `self_join` reads all of them; an exact `distinct` reads them only if samples leave a doubt. Over
        several warehouses the numbers are sums. Only marks and logs are read for this plan. Files count
        whole. Rounds of requests, which are not known before, and the comparison of files with their digests,
        once in a process, are not counted.
        """
        (plan,) = ask(self._session, KeyRequest.of(PlannedScan(), **options))
        return plan

    def overlap(self, a: Any, b: Any, *, key: Any = None, mode: KeyMode = "approximate") -> OverlapAnswer:
        """How many distinct keys two windows share, and how many only one of them has.

        a, b: windows as in `between`: (start, end), the end exclusive, None for an open side; or None for all
            rows.

        With two weeks, `both` are the keys of the first that stayed. The cost is that of `distinct`.
        """
        wanted = Overlap(AskedWindow(between=b))
        (answer,) = ask(self._session, KeyRequest.of(wanted, key=key, between=a, mode=mode))
        return answer

    @overload
    def new_keys(self, *, every: None = None, **options: Unpack[KeyOptions]) -> DistinctAnswer: ...
    @overload
    def new_keys(self, *, every: Any, **options: Unpack[KeyOptions]) -> Answers[DistinctAnswer]: ...
    def new_keys(self, **options: Unpack[KeyPartOptions]) -> DistinctAnswer | Answers[DistinctAnswer]:
        """The number of distinct keys of the window that no row before the window has.

        The window needs a start. Rows without a time are in no window, so they are not before it either. The
        cost is that of `distinct`.
        """
        return self._one(DistinctAnswer, KeyRequest.of(NewKeys(), **options))

    def persistent(
        self, alpha: Any, *, slot: Any = None, most: int | None = None, **options: Unpack[KeyOptions]
    ) -> Answers[PersistentAnswer]:
        """Every key that has rows in at least a share alpha of the window's slots, most slots first.

        alpha: the share of the slots, 0 < alpha <= 1; all slots of the window count, also empty ones.
        slot: a tick (None), or a duration that is a multiple of it, such as "7d"; slots start at multiples of
            it since 1970 in UTC, weeks on Mondays, and the first and the last one end where the window does.
            Without a time column a number of steps.
        most: the most rows that a key may have in the window; None for no limit. So rare keys are found that
            nevertheless come every day.

        No such key is missing. `lo` and `hi` are certain. A key that may be in fewer slots, or have more rows
        than `most`, has `certain` False. An open side of the window ends at the data; rows without a time are
        in no slot. The marks list the keys of many ticks. Other rows of candidates are looked up, one or two
        blocks per run and key. If a key that no marks list can reach alpha, the keys' blocks are all read,
        and `rows_scanned` says how many rows that were. Raises InputError if the warehouse has no key.
        """
        wanted = Persistent(plain(slot), plain_share(alpha), plain(most))
        ((found, scope),) = ask(self._session, KeyRequest.of(wanted, **options))
        return answers_of(found, PersistentAnswer, next(iter(found), scope))

    def persistence(self, value: Any, *, slot: Any = None, **options: Unpack[KeyOptions]) -> Any:
        """In how many slots of the window the key has rows, and in which.

        value: as in `frequency`. slot: as in `persistent`.

        Returns one PersistenceAnswer for a value, Answers in the order of the sequence otherwise. Exact in
        history; `lo` and `hi` are certain. Reads one or two blocks per run and key that the marks do not
        list.
        """
        wanted = Persistence(plain(slot), plain_all(value))
        (((found, scope), several),) = ask(self._session, KeyRequest.of(wanted, **options))
        return answers_of(found, PersistenceAnswer, next(iter(found), scope)) if several else found[0]

    def _listed(self, kind: type[S], request: KeyRequest[tuple[list[S], KeyScope]]) -> Answers[S]:
        """The answers about keys or prefixes; there may be none, so they get the scope of the question."""
        results = ask(self._session, request)
        if request.every is not None or request.by:
            lists = [found for found, _ in results]
            asked = self._asked(list(chain.from_iterable(lists)), len(lists), request)
            return cast("Answers[S]", asked.answers(kind, one=False))
        ((found, scope),) = results
        return answers_of(found, kind, scope)

    def _one(self, kind: type[S], request: KeyRequest[S]) -> S | Answers[S]:
        answers = ask(self._session, request)
        return self._asked(answers, len(answers), request).answers(kind, one=True)

    def _asked(self, answers: Sequence[S], parts: int, request: KeyRequest[Any]) -> Asked[S]:
        by = shown_names(self._session.options, request.by)
        return Asked(answers, parts, by, windows=request.every is not None, order=request.order)
