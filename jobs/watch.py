"""Quantiles that are redrawn as data arrives."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import query
from jobs.answers import asked, phi_of, rich_table
from query.plain import json_text
from warehouse.errors import EmptyWindow, InputError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


def run(given: argparse.Namespace) -> int:
    """Asks every few seconds until Ctrl-C or --times; a window without rows yet is waited for."""
    if not given.every > 0:
        raise InputError(f"--every must be a positive number of seconds, got {given.every:g}.")
    if given.times is not None and given.times < 1:
        raise InputError(f"--times must be at least 1, got {given.times}.")
    wh = query.open(given.warehouse)
    phis, how = [phi_of(text) for text in given.phi], asked(wh, given)
    try:
        with _screen(given) as show:
            for _ in _looks(given.every, given.times):
                try:
                    show(wh.quantile(phis, given.measure, **how))
                except EmptyWindow as nothing:
                    show(nothing)
    except KeyboardInterrupt:
        pass
    return 0


def _looks(every: float, times: int | None) -> Iterator[int]:
    """Counts looks, with the pause between two of them."""
    count = 0
    while times is None or count < times:
        if count:
            time.sleep(every)
        yield count
        count += 1


def _screen(given: argparse.Namespace) -> AbstractContextManager[Callable[[Any], None]]:
    """What shows answers, or the EmptyWindow that came instead of them."""
    if given.json:
        return nullcontext(_show_json)
    if sys.stdout.isatty():
        return _live()
    return nullcontext(lambda seen: print(seen, flush=True))


def _show_json(seen: Any) -> None:
    empty = isinstance(seen, EmptyWindow)
    print(json_text({"answers": [], "empty": str(seen)}) if empty else seen.to_json(), flush=True)


@contextmanager
def _live() -> Iterator[Callable[[Any], None]]:
    from rich.live import Live

    with Live(auto_refresh=False) as screen:
        yield lambda seen: screen.update(
            str(seen) if isinstance(seen, EmptyWindow) else rich_table(seen), refresh=True
        )
