"""The command `tidemark watch`: quantiles and the most frequent keys, refreshed as data arrives."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

from tidemark import query
from tidemark.jobs.ask.quantiles import opened, parse_phi, rich_table, window_and_mode
from tidemark.jobs.cli.exit_codes import DONE
from tidemark.jobs.cli.terminal import console
from tidemark.warehouse.columns.json_values import json_text
from tidemark.warehouse.errors import EmptyWindow, InputError


def run(given: argparse.Namespace) -> int:
    """Queries every few seconds until Ctrl-C or --times; an empty window is shown, and queried again."""
    if not given.every > 0:
        raise InputError(f"--every must be a positive number of seconds, got {given.every:g}.")
    if given.times is not None and given.times < 1:
        raise InputError(f"--times must be at least 1, got {given.times}.")
    if given.top < 0:
        raise InputError(f"--top must be a number of keys, 0 for none, got {given.top}.")
    wh = opened(given)
    with suppress(KeyboardInterrupt), _screen(given) as show:
        for _ in repetitions(given.every, given.times):
            show(_query(wh, given))
    return DONE


def _query(wh: query.Warehouse, given: argparse.Namespace) -> list[Any]:
    """[quantiles, or EmptyWindow if there are no rows], then the top keys if the warehouse has a key."""
    options = window_and_mode(wh, given)
    try:
        results: list[Any] = [wh.quantile([parse_phi(text) for text in given.phi], given.measure, **options)]
    except EmptyWindow as empty:
        results = [empty]
    if wh.key and given.top:
        mode = "exact" if given.mode == "exact" else "approximate"
        results.append(wh.top(given.top, **{**options, "mode": mode}))
    return results


def repetitions(every: float, times: int | None) -> Iterator[int]:
    """Yields 0, 1, ... `times` - 1 and sleeps `every` seconds in between; without end if `times` is None."""
    count = 0
    while times is None or count < times:
        if count:
            time.sleep(every)
        yield count
        count += 1


def _screen(given: argparse.Namespace) -> AbstractContextManager[Callable[[list[Any]], None]]:
    """Opens the output; yields the function that shows the results of one repetition."""
    if given.json:
        return nullcontext(lambda results: print(_document(*results), flush=True))
    if sys.stdout.isatty():
        return _live()
    return nullcontext(lambda results: print(*results, sep="\n\n", end="\n\n", flush=True))


def _document(quantiles: Any, keys: Any = None) -> str:
    """The JSON document of the quantiles, with the document of the keys as its field `top`."""
    if isinstance(quantiles, EmptyWindow):
        document: dict[str, Any] = {"answers": [], "empty": str(quantiles)}
    else:
        document = json.loads(quantiles.to_json())
    return json_text(document if keys is None else {**document, "top": json.loads(keys.to_json())})


@contextmanager
def _live() -> Iterator[Callable[[list[Any]], None]]:
    from rich.console import Group
    from rich.live import Live

    with Live(console=console(), auto_refresh=False) as screen:
        yield lambda results: screen.update(Group(*map(_drawn, results)), refresh=True)


def _drawn(result: Any) -> Any:
    return str(result) if isinstance(result, EmptyWindow) else rich_table(result)
