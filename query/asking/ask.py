"""From a question as the caller gave it to its answer: how it is answered, its newest view, the answer.

The look for the newest view brings newer options, too, without a round of requests of its own. What an older
state of the warehouse refused is asked of a newer one, if there is one.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Protocol, TypeVar

from tidemark.query.asking.session import Session
from tidemark.query.reading.spending import check, limited, spending
from tidemark.warehouse.errors import DamagedWarehouse, InputError, StoreUnavailable, TidemarkError
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.per_process import per_process

T = TypeVar("T")
W = TypeVar("W")
A_co = TypeVar("A_co", covariant=True)

ATTEMPTS = 3  # files missing from three views in a row are damage, not maintenance
_GUESSES = 8  # at once in a process; further questions do without a thread


class Asks(Protocol[A_co]):
    """A question as the caller gave it."""

    def plan(self, session: Session, /) -> Plan[Any, A_co]:
        """How it is answered; InputError if the question does not fit the options of the session."""


class Plan(Protocol[W, A_co]):
    """A question that is understood: which view answers it, and how."""

    @property
    def topic(self) -> Hashable:
        """Names its view among those of other questions; None for a question that reads little or all."""

    def newest(self) -> W:
        """The newest view."""

    def answer(self, view: W, /) -> A_co:
        """The answer from a view. DamagedWarehouse if a file of the view is missing or damaged."""


def ask(session: Session, request: Asks[T]) -> T:
    """The answer by the newest options and the newest view.

    It is asked again if the options changed meanwhile, or since it was refused: a column, key or group may
    have come. If a file is missing, it is asked of newer views, ATTEMPTS in all. If a store stops answering
    and silent warehouses may be bounded, it is asked once more. Errors of the operating system and of the
    store become those of tidemark.
    """
    views_left, stores_left = ATTEMPTS, 1 + session.bounds_silent
    with report_os_errors("a question"), limited(session.time_limit):
        while True:
            options, began, view = session.options, time.monotonic(), None
            try:
                plan = request.plan(session)
                view, guess = _look(session, plan)
                if session.options is not options:
                    continue
                answer = _answer(plan, view) if guess is None or _has_failed(guess) else guess.result()
                if session.options is options:
                    return answer
            except InputError:
                if session.newest_options(since=began) is options:
                    raise
            except DamagedWarehouse:
                views_left -= 1
                if not (views_left and view and (session.look_everywhere() or plan.newest() is not view)):
                    raise
            except StoreUnavailable:
                stores_left -= 1
                if not stores_left:
                    raise


def _look(session: Session, plan: Plan[W, T]) -> tuple[W, Future[T] | None]:
    """The newest view of a plan, and the future of its answer if a thread has begun to find it.

    In an object store the question is answered from the last view of its topic while a newer view is looked
    for. If there is no newer view, this answer is returned: its reads ran beside the check. If there is one,
    the next question of the topic waits for its check, as further views may come.
    """
    topic = plan.topic
    known, is_settled = session.views.get(topic, (None, False))
    options, guess = session.options, None
    if is_settled:
        guess = _guesses().submit(copy_context().run, _answer, plan, known)
    view = plan.newest()
    is_same = _is_same(view, known)
    if topic is not None and session.looks_take_a_round and not (is_same and is_settled):
        nothing_newer = is_same or known is None
        others = session.views if nothing_newer and session.options is options else {}
        session.views = {**others, topic: (view, nothing_newer)}
    return view, guess if guess is not None and not guess.cancel() and is_same else None


def _answer(plan: Plan[W, T], view: W) -> T:
    """The answer from a view, which tells what was read for it."""
    check()
    with spending():
        return plan.answer(view)


def _has_failed(guess: Future[Any]) -> bool:
    """Whether the question is to be asked again; a fault of ours is raised by the result."""
    return isinstance(guess.exception(), TidemarkError | OSError)


def _is_same(view: Any, other: Any) -> bool:
    """Whether these are the same objects, one or several."""
    if isinstance(view, tuple) and isinstance(other, tuple):
        return all(map(operator.is_, view, other))
    return view is other


@per_process
def _guesses() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_GUESSES, thread_name_prefix="tidemark-answers")
