"""Questions about keys: from the arguments to one `KeyQuestion` per window."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Generic, TypedDict, TypeVar

from tidemark.query.answers.key_answers import CountAnswer
from tidemark.query.asking.session import Session
from tidemark.query.keys.frequencies import InnerProduct
from tidemark.query.keys.key_question import KeyQuestion, WantedKeys
from tidemark.query.keys.key_windows import KeyWindow, key_window
from tidemark.query.keys.window_scan import ScannedWindow, WindowScan
from tidemark.query.reading.asked_window import AskedWindow
from tidemark.query.reading.modes import KEY_MODES, KeyMode, check_mode
from tidemark.query.reading.windows import (
    choose_window,
    data_ticks,
    shown_window,
    split_window,
    widened_text,
)
from tidemark.warehouse.columns.scalars import take_scalars
from tidemark.warehouse.columns.ticks import TickGrid, Window
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

    def __post_init__(self) -> None:
        take_scalars(self)

    @classmethod
    def of(
        cls,
        wanted: WantedKeys[A],
        *,
        key: Any = None,
        last: Any = None,
        as_of: Any = None,
        between: Any = None,
        mode: KeyMode = "approximate",
        every: Any = None,
    ) -> KeyRequest[A]:
        """The request of a call with these parameters; they are described at `Reader`."""
        return cls(wanted, key, AskedWindow(last, between, as_of), every, mode)

    def plan(self, session: Session) -> _Windows[A]:
        """How each window is answered; one without `every`."""
        return _Windows(session, self, check_mode(self.mode, KEY_MODES))


class KeyOptions(TypedDict, total=False):
    """The keyword parameters of `KeyRequest.of` for one window: without `every`."""

    key: Any
    last: Any
    as_of: Any
    between: Any
    mode: KeyMode


class KeyPartOptions(KeyOptions, total=False):
    """The keyword parameters of `KeyRequest.of`."""

    every: Any


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
        return self.session.newest_keys_view(self.request.key)

    def answer(self, view: KeysView) -> list[A]:
        session, grid = self.session, self.session.options.grid
        asked = [self.request.wanted.windows(window, view, grid) for window in self._chosen(view, grid)]
        questions = [
            [key_question(session, view, window, self.mode, self.request.key) for window in together]
            for together in asked
        ]
        if self.request.every is None or not asked:
            return [self.request.wanted.answers(together) for together in questions]
        with closing(_scan(session, view, list(chain.from_iterable(asked)))) as scan:
            places = {window: part for part, window in enumerate(scan.windows)}
            return [
                self.request.wanted.answers(
                    [
                        replace(one, scanned=ScannedWindow(scan, places.get(one.window.overlapping, -1)))
                        for one in together
                    ]
                )
                for together in questions
            ]

    def _chosen(self, view: KeysView, grid: TickGrid | None) -> list[KeyWindow]:
        """The windows of the request. With `every` they are whole ticks, as those of measures."""
        request = self.request
        if request.every is None:
            return [key_window(view, request.window, grid)]
        window = choose_window(view, request.window, grid)
        parts = split_window(window, data_ticks(view), request.every, grid)
        widened = widened_text(view, request.window, grid)
        return [KeyWindow(part, (), shown_window(part, grid), widened) for part in parts]


@dataclass(frozen=True, slots=True)
class Join(WantedKeys[CountAnswer]):
    """The size of the join with the same window of another warehouse."""

    other: Session
    options: KeyOptions

    def answers(self, questions: Sequence[KeyQuestion]) -> CountAnswer:
        """The number of pairs."""
        (answer,) = self.other.ask(KeyRequest.of(InnerProduct(*questions), **self.options))
        return answer


def _scan(session: Session, view: KeysView, windows: Sequence[KeyWindow]) -> WindowScan:
    """One scan for windows of whole ticks: in order of their ends, those that overlap none before them."""
    apart: list[Window] = []
    for window in sorted((window.overlapping for window in windows), key=lambda one: (one.stop, one.start)):
        if not apart or window.start >= apart[-1].stop:
            apart.append(window)
    whole = KeyWindow(Window(apart[0].start, apart[-1].stop), (), None)
    return WindowScan(key_question(session, view, whole, "exact").rows(), apart)


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
    )
