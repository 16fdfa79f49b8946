"""The command `tidemark alert`: prints and delivers what changes, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark import query
from tidemark.jobs.ask.delivery import Command, Post, seconds_of
from tidemark.jobs.cli.exchange_secret import secret_of
from tidemark.jobs.cli.exit_codes import DONE, FAILED
from tidemark.jobs.cli.options.parsed import storage_options_of, warehouse_of
from tidemark.jobs.cli.stop_signals import stop_on_signals
from tidemark.warehouse.columns.json_values import json_text
from tidemark.warehouse.errors import InputError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

_TRIES = 5  # seconds of the deliveries at the end


def run(given: argparse.Namespace) -> int:
    """Prints the states at first, then the changes. FAILED if notices could not be delivered at the end."""
    given.storage_options = storage_options_of(given)
    if given.sites is None:
        given.warehouse = warehouse_of(given)
    return _run(given) if given.site is None else _run_site(given)


def _check(given: argparse.Namespace) -> None:
    """InputError for options that do not belong together, and for numbers out of range."""
    meet = {f"--{name}": getattr(given, name) for name in ("exchange", "topic", "secret")}
    if given.site is not None and given.when:
        raise InputError("--site has no --when: the conditions are those of the command with --sites.")
    if given.site is None and not given.when:
        raise InputError("no condition was given. Give --when \"quantile(0.99, last='15m') > 500\".")
    if given.sites is not None and getattr(given, "warehouse", None):
        raise InputError("--sites has no -w: each site looks at its own, with --site.")
    needed = given.sites is not None or given.site is not None
    for name, value in meet.items():
        if needed and value is None:
            raise InputError(f"{name} is needed with --sites and --site, the same at all places.")
        if not needed and value is not None:
            raise InputError(f"{name} is for --sites and --site.")
    for name in ("every", "poll"):
        if not getattr(given, name) > 0:
            raise InputError(f"--{name} must be a positive number of seconds, got {getattr(given, name):g}.")
    if given.times is not None and given.times < 1:
        raise InputError(f"--times must be at least 1, got {given.times}.")


def _run(given: argparse.Namespace) -> int:
    _check(given)
    notify = _receiver(given)
    state = given.state or (_place(given) if notify is not None else None)
    stopping = threading.Event()
    with (
        query.alert(
            *given.when,
            **_asked(given),
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
        early = alert.check()
        while alert.unknown and not stopping.wait(given.poll):
            early += alert.check()  # a state is known once all sites have told
        states = alert.states
        for one in [*_passed(early, states), *states]:
            say(one)
        if given.times != 1:
            times = None if given.times is None else given.times - 1
            for one in alert.watch(given.every, given.poll, times, stopping):
                say(one)
        _say_traffic(given, alert)
        return DONE if _end(alert, stopping) else FAILED


def _passed(early: Sequence[query.GroupState], states: Sequence[query.GroupState]) -> list[query.GroupState]:
    """The changes that the states do not show: another change followed, or the group is gone."""
    shown = {(one.when, str(one.group), one.since) for one in states}
    return [one for one in early if (one.when, str(one.group), one.since) not in shown]


def _run_site(given: argparse.Namespace) -> int:
    """Looks at the warehouse of a site until Ctrl-C or SIGTERM."""
    _check(given)
    stopping = threading.Event()
    with stop_on_signals(stopping):
        site = query.alert_site(given.site, exchange=_exchange(given), wh=_opened(given), every=given.every)
        site.watch(given.poll, stopping)
    return DONE


def _asked(given: argparse.Namespace) -> dict[str, Any]:
    """The options as keywords of `query.alert`."""
    if given.sites is None:
        return {"wh": _opened(given)}
    return {"sites": given.sites, "exchange": _exchange(given), "silent": given.silent}


def _opened(given: argparse.Namespace) -> query.Warehouse:
    return query.open(
        given.warehouse, given.storage_options, missing=given.missing, duplicates=given.duplicates
    )


def _exchange(given: argparse.Namespace) -> query.Exchange:
    return query.Exchange(
        uri=given.exchange,
        topic=given.topic,
        secret=secret_of(given.secret),
        storage_options=given.storage_options,
    )


def _say_traffic(given: argparse.Namespace, alert: query.Alert) -> None:
    """Prints the traffic, and the traffic that asking would have taken; with --json each state has both."""
    found = alert.traffic
    if found and not given.json:
        print(
            f"{found['messages']:,} messages of {found['bytes']:,} bytes; asking each site whenever it "
            f"looked takes {found['messages_of_asking']:,} of {found['bytes_of_asking']:,}"
        )


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
    """The receiver of notices; None if they only go to the output."""
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
    asked = getattr(given, "warehouse", None) or [str(given.exchange), given.topic]
    named = json_text([asked, sorted(given.when)])
    return folder / "tidemark" / f"alert-{hashlib.sha256(named.encode()).hexdigest()[:16]}.json"


def _end(alert: query.Alert, stopping: threading.Event) -> bool:
    """Tries to deliver the remaining notices; whether all were delivered. A stop signal ends it."""
    for _ in range(_TRIES):
        if alert.deliver() == 0:
            return True
        if stopping.wait(2.0):
            break
    return alert.deliver() == 0
