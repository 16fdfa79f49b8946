"""Questions about keys: from the arguments to one `KeyQuestion` per window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tidemark.query.asking.session import Session
from tidemark.query.keys.frequencies import MODES
from tidemark.query.keys.key_question import KeyQuestion
from tidemark.query.keys.key_windows import KeyWindow, key_window, window_before
from tidemark.query.keys.slots import Slots, slots_of
from tidemark.query.keys.window_scan import ScannedWindow, WindowScan
from tidemark.query.quantiles.questions import check_mode
from tidemark.query.reading.asked_window import AskedWindow
from tidemark.query.reading.windows import (
    choose_window,
    data_ticks,
    shown_window,
    split_window,
    tick_range,
    widened_text,
)
from tidemark.warehouse.columns.scalars import plain, take_scalars
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.ledger.key_summaries import KeyPromise
from tidemark.warehouse.snapshots.snapshot import KeysView

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KeyRequest:
    """The arguments of a question about a key, as the caller gave them, with scalars as Python values."""

    key: Any
    window: AskedWindow
    every: Any
    mode: Any

    def __post_init__(self) -> None:
        take_scalars(self)


def ask_key(session: Session, request: KeyRequest, answer: Callable[[KeyQuestion], T]) -> list[T]:
    """The result of `answer` for each window; one without `every`."""
    return _ask(
        session,
        request,
        lambda view: _windows(session, request, view),
        lambda questions: [answer(question) for question in questions],
    )


def ask_new_keys(
    session: Session, request: KeyRequest, answer: Callable[[KeyQuestion, KeyQuestion], T]
) -> list[T]:
    """The result of `answer` for each window and all that is before it.

    InputError if the window has no start.
    """
    grid = session.options.grid

    def windows(view: KeysView) -> list[KeyWindow]:
        pairs = ([window, window_before(window, grid)] for window in _windows(session, request, view))
        return [window for pair in pairs for window in pair]

    def answers(questions: list[KeyQuestion]) -> list[T]:
        return [answer(*pair) for pair in zip(questions[::2], questions[1::2], strict=True)]

    return _ask(session, request, windows, answers)


def ask_overlap(
    session: Session, requests: Sequence[KeyRequest], answer: Callable[[KeyQuestion, KeyQuestion], T]
) -> T:
    """The result of `answer` for two windows of one view: those of two requests that differ only in these."""

    def windows(view: KeysView) -> list[KeyWindow]:
        return [window for request in requests for window in _windows(session, request, view)]

    return _ask(session, requests[0], windows, lambda questions: answer(*questions))


def ask_slots(
    session: Session, request: KeyRequest, slot: Any, answer: Callable[[KeyQuestion, Slots], T]
) -> T:
    """The result of `answer` for the window without its open sides, and its slots."""
    mode, grid = check_mode(request.mode, MODES), session.options.grid

    def answers(view: KeysView) -> T:
        window = key_window(view, request.window, grid)
        window, slots = slots_of(window, tick_range(view), plain(slot), grid)
        return answer(key_question(session, view, window, mode, request.key), slots)

    result: T = session.answer_from(lambda: newest_keys_view(session, request.key), answers, _topic(request))
    return result


def _ask(
    session: Session,
    request: KeyRequest,
    windows: Callable[[KeysView], list[KeyWindow]],
    answer: Callable[[list[KeyQuestion]], T],
) -> T:
    """The result of `answer` for questions about windows of the newest view."""
    mode = check_mode(request.mode, MODES)

    def answers(view: KeysView) -> T:
        found = windows(view)
        questions = [key_question(session, view, window, mode, request.key) for window in found]
        if request.every is None or not found:
            return answer(questions)
        with closing(_scan(session, view, found)) as scan:
            places = {window: part for part, window in enumerate(scan.windows)}
            shared = (ScannedWindow(scan, places.get(window.overlapping, -1)) for window in found)
            return answer([replace(one, scanned=part) for one, part in zip(questions, shared, strict=True)])

    result: T = session.answer_from(lambda: newest_keys_view(session, request.key), answers, _topic(request))
    return result


def _scan(session: Session, view: KeysView, windows: Sequence[KeyWindow]) -> WindowScan:
    """One scan for windows of whole ticks: in order of their ends, those that overlap none before them."""
    apart: list[Window] = []
    for window in sorted((window.overlapping for window in windows), key=lambda one: (one.stop, one.start)):
        if not apart or window.start >= apart[-1].stop:
            apart.append(window)
    whole = KeyWindow(Window(apart[0].start, apart[-1].stop), (), None)
    return WindowScan(key_question(session, view, whole, "exact").rows(), apart)


def _topic(request: KeyRequest) -> str:
    return f"keys {request.key!r}"  # a key may be a list


def newest_keys_view(session: Session, key: Any = None) -> KeysView:
    """The newest view of a key."""
    return session.newest_view(
        lambda snapshot: snapshot.keys_view(key), lambda options: options.key_count(key)
    )


def _windows(session: Session, request: KeyRequest, view: KeysView) -> list[KeyWindow]:
    """The windows of a request. With `every` they are whole ticks, as those of measures."""
    grid = session.options.grid
    if request.every is None:
        return [key_window(view, request.window, grid)]
    window = choose_window(view, request.window, grid)
    parts = split_window(window, data_ticks(view), request.every, grid)
    widened = widened_text(view, request.window, grid)
    return [KeyWindow(part, (), shown_window(part, grid), widened) for part in parts]


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
    )
