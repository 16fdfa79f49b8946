"""Quantiles, and the most frequent keys, that are redrawn as data arrives."""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from tidemark import query
from tidemark.jobs.ask.quantiles import asked, phi_of, rich_table
from tidemark.warehouse.columns.json_values import json_text
from tidemark.warehouse.errors import EmptyWindow, InputError

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
    if given.top < 0:
        raise InputError(f"--top must be a number of keys, 0 for none, got {given.top}.")
    wh = query.open(given.warehouse)
    with suppress(KeyboardInterrupt), _screen(given) as show:
        for _ in _looks(given.every, given.times):
            show(_seen(wh, given))
    return 0


def _seen(wh: query.Warehouse, given: argparse.Namespace) -> list[Any]:
    """Quantiles, or the EmptyWindow that came instead of them; and keys where the warehouse has some."""
    how = asked(wh, given)
    try:
        seen: list[Any] = [wh.quantile([phi_of(text) for text in given.phi], given.measure, **how)]
    except EmptyWindow as nothing:
        seen = [nothing]
    if wh.key and given.top:
        mode = "exact" if given.mode == "exact" else "approximate"
        seen.append(wh.top(given.top, **{**how, "mode": mode}))
    return seen


def _looks(every: float, times: int | None) -> Iterator[int]:
    """Counts looks, with the pause between two of them."""
    count = 0
    while times is None or count < times:
        if count:
            time.sleep(every)
        yield count
        count += 1


def _screen(given: argparse.Namespace) -> AbstractContextManager[Callable[[list[Any]], None]]:
    """What shows a look."""
    if given.json:
        return nullcontext(lambda seen: print(_document(*seen), flush=True))
    if sys.stdout.isatty():
        return _live()
    return nullcontext(lambda seen: print(*seen, sep="\n\n", end="\n\n", flush=True))


def _document(quantiles: Any, keys: Any = None) -> str:
    """One document: that of the quantiles, with that of the keys in its `top`."""
    if isinstance(quantiles, EmptyWindow):
        document: dict[str, Any] = {"answers": [], "empty": str(quantiles)}
    else:
        document = json.loads(quantiles.to_json())
    return json_text(document if keys is None else {**document, "top": json.loads(keys.to_json())})


@contextmanager
def _live() -> Iterator[Callable[[list[Any]], None]]:
    from rich.console import Group
    from rich.live import Live

    with Live(auto_refresh=False) as screen:
        yield lambda seen: screen.update(Group(*map(_drawn, seen)), refresh=True)


def _drawn(one: Any) -> Any:
    return str(one) if isinstance(one, EmptyWindow) else rich_table(one)
