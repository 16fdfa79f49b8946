"""The command `tidemark alert`: prints and delivers what changes, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark import query
from tidemark.jobs.ask.delivery import Command, Post, seconds_of
from tidemark.jobs.cli.exit_codes import DONE, FAILED
from tidemark.jobs.cli.stop_signals import stop_on_signals
from tidemark.warehouse.columns.json_values import json_text
from tidemark.warehouse.errors import InputError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

_TRIES = 5  # of the deliveries at the end


def run(given: argparse.Namespace) -> int:
    """Prints the states at first, then what changes. FAILED if notices could not be delivered at the end."""
    for name in ("every", "poll"):
        if not getattr(given, name) > 0:
            raise InputError(f"--{name} must be a positive number of seconds, got {getattr(given, name):g}.")
    if given.times is not None and given.times < 1:
        raise InputError(f"--times must be at least 1, got {given.times}.")
    notify = _receiver(given)
    wh = query.open(
        given.warehouse, given.storage_options, missing=given.missing, duplicates=given.duplicates
    )
    state = given.state or (_place(given) if notify is not None else None)
    stopping = threading.Event()
    with (
        query.alert(
            *given.when,
            wh=wh,
            theta=given.theta,
            clear=_level(given.clear),
            lag=given.lag,
            stale=given.stale,
            state=state,
            notify=notify,
        ) as alert,
        stop_on_signals(stopping),
    ):
        say = _sayer(given)
        alert.check()
        for state in alert.states:
            say(state)
        if given.times != 1:
            times = None if given.times is None else given.times - 1
            for one in alert.watch(given.every, given.poll, times, stopping):
                say(one)
        return DONE if _end(alert, stopping) else FAILED


def _level(text: str | None) -> Any:
    """The level that --clear gives: a number, or the text of a time as it is."""
    from decimal import Decimal, InvalidOperation

    try:
        return None if text is None else Decimal(text)
    except InvalidOperation:
        return text


def _sayer(given: argparse.Namespace) -> Callable[[query.GroupState], None]:
    if given.json:
        return lambda one: print(json_text(one.to_dict()), flush=True)
    return lambda one: print(one, flush=True)


def _receiver(given: argparse.Namespace) -> Callable[[dict[str, Any]], None] | None:
    """Where notices go; None for nowhere but the output."""
    seconds = seconds_of(given.timeout)
    if given.receiver is not None:
        return Command.of(given.receiver, seconds)
    if given.post is not None:
        return Post.of(given.post, given.form, seconds)
    if given.post_from is not None:
        try:
            address = Path(given.post_from).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"--post-from {given.post_from} cannot be read: {error}.") from error
        return Post.of(address, given.form, seconds)
    return None


def _place(given: argparse.Namespace) -> Path:
    """The state file of these conditions on this warehouse, in the user's folder for such files."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    named = json_text([given.warehouse, sorted(given.when)])
    return folder / "tidemark" / f"alert-{hashlib.sha256(named.encode()).hexdigest()[:16]}.json"


def _end(alert: query.Alert, stopping: threading.Event) -> bool:
    """Tries to deliver what is left, and returns whether all was; a stop signal ends it."""
    for _ in range(_TRIES):
        if alert.deliver() == 0:
            return True
        if stopping.wait(2.0):
            break
    return alert.deliver() == 0
