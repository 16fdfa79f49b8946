"""The questions about keys: rows of a key, frequent keys, numbers of distinct keys, persistent keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypedDict, TypeVar, Unpack, cast, overload

from tidemark.query.answers.distinct_answers import DistinctAnswer, OverlapAnswer
from tidemark.query.answers.key_answers import CountAnswer, FrequencyAnswer, HitterAnswer, KeyScope
from tidemark.query.answers.measure_answers import Answers
from tidemark.query.answers.persistence_answers import PersistenceAnswer, PersistentAnswer
from tidemark.query.asking.asked import Asked, answers_of
from tidemark.query.asking.calls import checks_calls
from tidemark.query.asking.key_questions import (
    KeyRequest,
    ask_key,
    ask_new_keys,
    ask_overlap,
    ask_slots,
)
from tidemark.query.asking.session import Session, understood
from tidemark.query.keys.distinct_keys import distinct, new_keys, overlap
from tidemark.query.keys.frequencies import (
    frequencies,
    heavy_hitters,
    inner_product,
    key_range,
    self_join,
    top,
)
from tidemark.query.keys.key_question import KeyQuestion, key_scope
from tidemark.query.keys.persistent_keys import persistence, persistent, slot_scope
from tidemark.query.keys.slots import Slots
from tidemark.query.reading.asked_window import AskedWindow
from tidemark.warehouse.columns.scalars import is_sequence, plain, plain_all, plain_share
from tidemark.warehouse.errors import InputError

KeyMode = Literal["approximate", "exact"]
T = TypeVar("T")


class KeyOptions(TypedDict, total=False):
    """The keyword parameters of questions about keys, without `every`."""

    key: Any
    last: Any
    as_of: Any
    between: Any
    mode: KeyMode


@checks_calls
class KeyReader:
    """The questions about keys; their parameters are described at `Reader`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @overload
    def frequency(self, value: Any, *, every: None = None, **options: Unpack[KeyOptions]) -> Any: ...
    @overload
    def frequency(
        self, value: Any, *, every: Any, **options: Unpack[KeyOptions]
    ) -> Answers[FrequencyAnswer]: ...
    @understood
    def frequency(
        self,
        value: Any,
        *,
        key: Any = None,
        last: Any = None,
        as_of: Any = None,
        between: Any = None,
        mode: KeyMode = "approximate",
        every: Any = None,
    ) -> FrequencyAnswer | Answers[FrequencyAnswer]:
        """The number of rows that have the key.

        value: a value of the key column's type, or a sequence of values; these share one round of reads. A
            value of a key of several columns is a tuple, so a sequence of them is a list of tuples.

        Returns one FrequencyAnswer for a value, Answers in the order of the sequence otherwise. A key that no
        row has counts 0. Reads one or two blocks per run and key, and more only if a key fills more blocks.
        Raises InputError if the warehouse has no key.
        """
        value = plain_all(value)
        several = is_sequence(value) and not (isinstance(value, tuple) and self._has_parts(key))
        values = list(value) if several else [value]
        lists = self._ask_key(
            lambda question: frequencies(question, values),
            KeyRequest(key, AskedWindow(last, between, as_of), every, mode),
        )
        return Asked(lists, windows=every is not None).answers(FrequencyAnswer, one=not several)

    def heavy_hitters(
        self,
        phi: Any,
        *,
        key: Any = None,
        last: Any = None,
        as_of: Any = None,
        between: Any = None,
        mode: KeyMode = "approximate",
        every: Any = None,
    ) -> Answers[HitterAnswer]:
        """Every key that has at least phi of the rows with a key, most rows first.

        phi: the share of rows, 0 < phi <= 1.

        No such key is missing. A key that may be below phi has `certain` False. Reads the blocks of
        candidates that the marks do not count exactly; scans all blocks of the keys if phi is smaller than
        the marks' lists reach.
        """
        return self._hitters(
            lambda question: heavy_hitters(question, plain_share(phi)),
            KeyRequest(key, AskedWindow(last, between, as_of), every, mode),
        )

    def top(
        self,
        k: int = 10,
        *,
        key: Any = None,
        last: Any = None,
        as_of: Any = None,
        between: Any = None,
        mode: KeyMode = "approximate",
        every: Any = None,
    ) -> Answers[HitterAnswer]:
        """The k keys with the most rows, most rows first; fewer if the window has fewer keys.

        k: a whole number of at least 1.

        `certain` of a key means that no omitted key has more rows. The cost is that of `heavy_hitters`.
        """
        return self._hitters(
            lambda question: top(question, plain(k)),
            KeyRequest(key, AskedWindow(last, between, as_of), every, mode),
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
        self,
        low: Any,
        high: Any,
        *,
        key: Any = None,
        last: Any = None,
        as_of: Any = None,
        between: Any = None,
        mode: KeyMode = "approximate",
        every: Any = None,
    ) -> CountAnswer | Answers[CountAnswer]:
        """The number of rows with low <= key < high; both modes count the live rows.

        low, high: of the key column's type, None for an open side. Numbers are ordered by value with NaN
            last, text is ordered by its bytes.

        Reads two blocks per run that the window covers, else every block of the range, and the live rows.
        """
        low, high = plain_all(low), plain_all(high)
        return self._count(
            lambda question: key_range(question, low, high),
            KeyRequest(key, AskedWindow(last, between, as_of), every, mode),
        )

    @overload
    def self_join(self, *, every: None = None, **options: Unpack[KeyOptions]) -> CountAnswer: ...
    @overload
    def self_join(self, *, every: Any, **options: Unpack[KeyOptions]) -> Answers[CountAnswer]: ...
    def self_join(
        self,
        *,
        key: Any = None,
        last: Any = None,
        as_of: Any = None,
        between: Any = None,
        mode: KeyMode = "approximate",
        every: Any = None,
    ) -> CountAnswer | Answers[CountAnswer]:
        """The sum over all keys of their rows squared (F2); both modes scan all blocks and live rows."""
        return self._count(self_join, KeyRequest(key, AskedWindow(last, between, as_of), every, mode))

    def inner_product(
        self,
        other: KeyReader,
        *,
        key: Any = None,
        last: Any = None,
        as_of: Any = None,
        between: Any = None,
        mode: KeyMode = "approximate",
    ) -> CountAnswer:
        """The size of the join with another warehouse on the keys, with the same window in both.

        other: a reader of a warehouse whose key has the same type; InputError otherwise.

        Both modes scan all blocks and live rows of both warehouses. The answer has the scope of this one.
        """
        if not isinstance(other, KeyReader):
            raise InputError(
                f"other must be a reader of a warehouse, as query.open returns it, got {other!r}."
            )

        request = KeyRequest(key, AskedWindow(last, between, as_of), None, mode)

        def join(question: KeyQuestion) -> CountAnswer:
            (answer,) = other._ask_key(
                lambda other_question: inner_product(question, other_question), request
            )
            return answer

        (answer,) = self._ask_key(join, request)
        return answer

    @overload
    def distinct(self, *, every: None = None, **options: Unpack[KeyOptions]) -> DistinctAnswer: ...
    @overload
    def distinct(self, *, every: Any, **options: Unpack[KeyOptions]) -> Answers[DistinctAnswer]: ...
    def distinct(
        self,
        *,
        key: Any = None,
        last: Any = None,
        as_of: Any = None,
        between: Any = None,
        mode: KeyMode = "approximate",
        every: Any = None,
    ) -> DistinctAnswer | Answers[DistinctAnswer]:
        """The number of distinct keys; NULL is no key.

        Approximate answers come from samples of keys in memory, with probable and certain bounds; the error
        is a share of the keys that the largest run of the window does not have. Exact answers scan all blocks
        of the keys.
        """
        lists = self._ask_key(
            lambda question: [distinct(question)],
            KeyRequest(key, AskedWindow(last, between, as_of), every, mode),
        )
        return Asked(lists, windows=every is not None).answers(DistinctAnswer, one=True)

    @understood
    def overlap(self, a: Any, b: Any, *, key: Any = None, mode: KeyMode = "approximate") -> OverlapAnswer:
        """How many distinct keys two windows share, and how many only one of them has.

        a, b: windows as in `between`: (start, end), the end exclusive, None for an open side; or None for all
            rows.

        With two weeks, `both` are the keys of the first that stayed. The cost is that of `distinct`.
        """
        requests = [KeyRequest(key, AskedWindow(between=between), None, mode) for between in (a, b)]
        return ask_overlap(self._session, requests, overlap)

    @overload
    def new_keys(self, *, every: None = None, **options: Unpack[KeyOptions]) -> DistinctAnswer: ...
    @overload
    def new_keys(self, *, every: Any, **options: Unpack[KeyOptions]) -> Answers[DistinctAnswer]: ...
    @understood
    def new_keys(
        self,
        *,
        key: Any = None,
        last: Any = None,
        as_of: Any = None,
        between: Any = None,
        mode: KeyMode = "approximate",
        every: Any = None,
    ) -> DistinctAnswer | Answers[DistinctAnswer]:
        """The number of distinct keys of the window that no row before the window has.

        The window needs a start. Rows without a time are in no window, so they are not before it either. The
        cost is that of `distinct`.
        """
        request = KeyRequest(key, AskedWindow(last, between, as_of), every, mode)
        lists = [[answer] for answer in ask_new_keys(self._session, request, new_keys)]
        return Asked(lists, windows=every is not None).answers(DistinctAnswer, one=True)

    @understood
    def persistent(
        self,
        alpha: Any,
        *,
        key: Any = None,
        last: Any = None,
        as_of: Any = None,
        between: Any = None,
        slot: Any = None,
        most: int | None = None,
        mode: KeyMode = "approximate",
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

        def ask(question: KeyQuestion, slots: Slots) -> tuple[list[PersistentAnswer], KeyScope]:
            return persistent(question, slots, plain_share(alpha), plain(most)), slot_scope(question)

        request = KeyRequest(key, AskedWindow(last, between, as_of), None, mode)
        found, scope = ask_slots(self._session, request, slot, ask)
        return answers_of(found, PersistentAnswer, next(iter(found), scope))

    @understood
    def persistence(
        self,
        value: Any,
        *,
        key: Any = None,
        last: Any = None,
        as_of: Any = None,
        between: Any = None,
        slot: Any = None,
        mode: KeyMode = "approximate",
    ) -> Any:
        """In how many slots of the window the key has rows, and in which.

        value: as in `frequency`. slot: as in `persistent`.

        Returns one PersistenceAnswer for a value, Answers in the order of the sequence otherwise. Exact in
        history; `lo` and `hi` are certain. Reads one or two blocks per run and key that the marks do not
        list.
        """
        value = plain_all(value)
        several = is_sequence(value) and not (isinstance(value, tuple) and self._has_parts(key))
        values = list(value) if several else [value]

        def ask(question: KeyQuestion, slots: Slots) -> tuple[list[PersistenceAnswer], KeyScope]:
            return persistence(question, slots, values), slot_scope(question)

        request = KeyRequest(key, AskedWindow(last, between, as_of), None, mode)
        found, scope = ask_slots(self._session, request, slot, ask)
        return answers_of(found, PersistenceAnswer, next(iter(found), scope)) if several else found[0]

    def _has_parts(self, key: Any) -> bool:
        """Whether the key has several columns."""
        return len(self._session.options.key_named(key).parts) > 1

    @understood
    def _ask_key(self, answer: Callable[[KeyQuestion], T], request: KeyRequest) -> list[T]:
        """The result of `answer` for each window; one without `every`."""
        return ask_key(self._session, request, answer)

    def _hitters(
        self, answer: Callable[[KeyQuestion], list[HitterAnswer]], request: KeyRequest
    ) -> Answers[HitterAnswer]:
        """Frequent keys; there may be none, so the scope is that of the question."""
        results = self._ask_key(lambda question: (answer(question), key_scope(question)), request)
        if request.every is not None:
            found = Asked([hitters for hitters, _ in results], windows=True)
            return cast("Answers[HitterAnswer]", found.answers(HitterAnswer, one=False))
        ((hitters, scope),) = results
        return answers_of(hitters, HitterAnswer, scope)

    def _count(
        self, answer: Callable[[KeyQuestion], CountAnswer], request: KeyRequest
    ) -> CountAnswer | Answers[CountAnswer]:
        lists = self._ask_key(lambda question: [answer(question)], request)
        return Asked(lists, windows=request.every is not None).answers(CountAnswer, one=True)
