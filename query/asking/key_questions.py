"""Questions about keys: from the arguments to one `KeyQuestion` per window."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from typing import Any, Generic, TypedDict, TypeVar

from tidemark.query.answers.key_answers import CountAnswer
from tidemark.query.asking.ask import Plan, ask
from tidemark.query.asking.event_keys import EventKeys
from tidemark.query.asking.scan_choice import choose_scan
from tidemark.query.asking.scanned_keys import ScannedKeys
from tidemark.query.asking.session import Session
from tidemark.query.groups.group_choice import GroupArguments, by_columns
from tidemark.query.groups.group_order import GroupOrder, order_of
from tidemark.query.keys.frequencies import InnerProduct
from tidemark.query.keys.key_question import KeyQuestion, WantedKeys
from tidemark.query.keys.key_windows import KeyWindow, key_windows
from tidemark.query.keys.window_scan import ScannedWindow, WindowScan
from tidemark.query.reading.asked_window import AskedWindow, checked_width
from tidemark.query.reading.modes import KEY_MODES, KeyMode, check_mode
from tidemark.warehouse.columns.scalars import take_scalars
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.ledger.key_summaries import KeyPromise
from tidemark.warehouse.snapshots.views import KeysView

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class KeyRequest(Generic[A]):
    """The arguments of a question about a key, as the caller gave them, with scalars as Python values."""

    wanted: WantedKeys[A]
    key: Any
    window: AskedWindow
    every: Any
    mode: Any
    width: Any
    groups: GroupArguments

    def __post_init__(self) -> None:
        take_scalars(self)

    @classmethod
    def of(  # noqa: PLR0913  the parameters of all questions about keys, once
        cls,
        wanted: WantedKeys[A],
        *,
        key: Any = None,
        last: Any = None,
        as_of: Any = None,
        between: Any = None,
        mode: KeyMode = "approximate",
        every: Any = None,
        width: Any = None,
        where: Any = None,
        by: Any = None,
        top: int | None = None,
        groups: Any = None,
        limit: int | None = None,
        order: str | None = None,
        least_rows: int | None = None,
    ) -> KeyRequest[A]:
        """The request of a call with these parameters; they are described at `Reader`."""
        chosen = GroupArguments(where, by, top, groups, limit, order, least_rows)
        return cls(
            wanted, key, AskedWindow(last, between, as_of), every, mode, checked_width(width, every), chosen
        )

    @property
    def by(self) -> tuple[str, ...]:
        """The columns that `by` names."""
        return by_columns(self.groups.by)

    @property
    def order(self) -> GroupOrder | None:
        """The order of the groups, if one was asked."""
        return order_of(self.groups.order, self.groups.top, self.groups.least_rows)

    def plan(self, session: Session) -> Plan[Any, Sequence[A]]:
        """How each window is answered, one without `every`; with `where` or `by` each group and window."""
        mode = check_mode(self.mode, KEY_MODES)
        session.check_windows(self.window, self.every)
        if not self.groups.check():
            return _Windows(session, self, mode)
        choice = choose_scan(session.options, self.groups, None)
        return ScannedKeys(session, self.wanted, self.key, self.window, self.every, self.width, choice)


class KeyOptions(TypedDict, total=False):
    """The keyword parameters of `KeyRequest.of` for one window: without `every`."""

    key: Any
    last: Any
    as_of: Any
    between: Any
    mode: KeyMode


class KeyPartOptions(KeyOptions, total=False):
    """The keyword parameters of `KeyRequest.of` for questions about all rows."""

    every: Any


class _ChosenKeyOptions(KeyOptions, total=False):
    where: Any
    top: int | None
    groups: Any
    limit: int | None
    order: str | None
    least_rows: int | None


class OneKeyOptions(_ChosenKeyOptions, total=False):
    """The keyword parameters of `KeyRequest.of` for one answer."""

    by: None
    every: None


class KeyGroupOptions(_ChosenKeyOptions, total=False):
    """The keyword parameters of `KeyRequest.of`."""

    by: Any
    every: Any
    width: Any


@dataclass(frozen=True, slots=True)
class _Windows(Generic[A]):
    """A question about keys in the windows of a request; a `Plan`."""

    session: Session
    request: KeyRequest[A]
    mode: str

    @property
    def topic(self) -> str:
        return f"keys {self.request.key!r}"  # a key may be a list

    def newest(self) -> KeysView:
        view = self.session.newest_keys_view(self.request.key)
        if view.silent and not self.request.wanted.bounds_silent:
            self.session.refuse_silent()
        return view

    def answer(self, view: KeysView) -> list[A]:
        session, grid = self.session, self.session.options.grid
        windows = key_windows(view, self.request.window, self.request.every, grid, self.request.width)
        if not windows:
            return self.request.wanted.each_answers([])
        asked = [self.request.wanted.windows(window, view, grid) for window in windows]
        first = key_question(session, view, windows[0], self.mode, self.request.key)
        questions = [[replace(first, window=window) for window in together] for together in asked]
        if self.request.every is None or view.silent:
            return self.request.wanted.each_answers(questions)
        apart = _apart(chain.from_iterable(asked)) if self.request.width is None else windows
        ticks = [window.overlapping for window in apart]
        whole = KeyWindow(Window(ticks[0].start, ticks[-1].stop), (), None)
        with closing(WindowScan(key_question(session, view, whole, "exact"), ticks)) as scan:
            places = {window: part for part, window in enumerate(scan.windows)}
            return self.request.wanted.each_answers(
                [
                    [
                        replace(one, scanned=ScannedWindow(scan, places.get(one.window.overlapping, -1)))
                        for one in together
                    ]
                    for together in questions
                ]
            )


@dataclass(frozen=True, slots=True)
class Join(WantedKeys[CountAnswer]):
    """The size of the join with the same window of another warehouse."""

    other: Session
    options: KeyOptions

    def answers(self, questions: Sequence[KeyQuestion]) -> CountAnswer:
        """The number of pairs."""
        (answer,) = ask(self.other, KeyRequest.of(InnerProduct(*questions), **self.options))
        return answer


def _apart(windows: Iterable[KeyWindow]) -> list[KeyWindow]:
    """The windows, in order of their ends, that overlap none before them."""
    apart: list[KeyWindow] = []
    for window in sorted(windows, key=attrgetter("overlapping.stop", "overlapping.start")):
        if not apart or window.overlapping.start >= apart[-1].overlapping.stop:
            apart.append(window)
    return apart


def key_question(
    session: Session, view: KeysView, window: KeyWindow, mode: str, key: Any = None
) -> KeyQuestion:
    """A question about a window of a view; `key` names its columns in the order of the values."""
    return KeyQuestion(
        source=session.keys,
        snapshot=session.snapshot,
        view=view,
        key=session.options.key_named(view.key.columns if key is None else key),
        window=window,
        mode=mode,
        promise=KeyPromise.of(session.options),
        grid=session.options.grid,
        events=None if view.silent else EventKeys(session, view),
    )
