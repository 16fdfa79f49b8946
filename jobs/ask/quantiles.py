"""The commands that answer: they ask the Python API, and print a table, plain text or JSON.

A terminal gets rich's tables. Anything else gets the text that the answers have in Python, which nothing
cuts or wraps.
"""

from __future__ import annotations

import sys
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from tidemark import query
from tidemark.jobs.cli.progress import status_when_slow
from tidemark.query.answers.rendering import text_of
from tidemark.warehouse.errors import InputError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from rich.table import Table

    from tidemark.warehouse.columns.keys import Key
    from tidemark.warehouse.columns.measures import Measure


BAR = 20  # letters of a histogram's longest bar


def info(given: argparse.Namespace) -> int:
    """Prints the facts of the warehouse."""
    found = query.open(given.warehouse).info()
    print(found.to_json() if given.json else found)
    return 0


def quantile(given: argparse.Namespace) -> int:
    """Answers `tidemark quantile`."""
    return answered(
        given, lambda wh: wh.quantile([phi_of(text) for text in given.phi], given.measure, **asked(wh, given))
    )


def rank(given: argparse.Namespace) -> int:
    """Answers `tidemark rank`."""
    return answered(
        given, lambda wh: wh.rank(points_of(wh, given.measure, given.x), given.measure, **asked(wh, given))
    )


def cdf(given: argparse.Namespace) -> int:
    """Answers `tidemark cdf`."""
    return answered(
        given, lambda wh: wh.cdf(points_of(wh, given.measure, given.x), given.measure, **asked(wh, given))
    )


def histogram(given: argparse.Namespace) -> int:
    """Answers `tidemark histogram`."""
    return answered(given, lambda wh: wh.histogram(bins_of(wh, given), given.measure, **asked(wh, given)))


def asked(wh: query.Warehouse, given: argparse.Namespace) -> dict[str, Any]:
    """Window and mode as the Python API has them."""
    last = int(given.last) if given.last and given.last.isdecimal() else given.last
    between = given.between and tuple(_edge(wh, text) for text in given.between)
    return {"last": last, "between": between, "mode": given.mode}


def _edge(wh: query.Warehouse, text: str) -> Any:
    """A time as text, or a step number where the warehouse has no time column; - is an open side."""
    if text == "-":
        return None
    return int(text) if wh.tick is None and text.lstrip("-").isdecimal() else text


def phi_of(text: str) -> Any:
    """The number, or the text itself, which the API refuses with a reason."""
    try:
        return float(text)
    except ValueError:
        return text


def points_of(wh: query.Warehouse, name: str | None, texts: list[str]) -> list[Any]:
    """Points in the measure's own type; an unknown measure is told by whoever is asked next."""
    measure = next((one for one in wh.measures if one.name == name), wh.measures[0])
    return [text if measure.type in {"date", "timestamp"} else number_of(measure, text) for text in texts]


def number_of(column: Measure | Key, text: str) -> Any:
    """The number that the text stands for, of a column of numbers.

    A double stays one: as an exact decimal 0.1 lies below the double that is stored for it.
    """
    try:
        if column.is_double:
            return float(text)
        exact = Decimal(text)
        return int(exact) if exact.is_finite() and exact == int(exact) else exact
    except (ValueError, InvalidOperation):
        raise InputError(
            f"not a number: {text!r}. {column.name!r} is of type {column.type}: give numbers such as 60."
        ) from None


def bins_of(wh: query.Warehouse, given: argparse.Namespace) -> Any:
    """The number of bins, or their edges."""
    return points_of(wh, given.measure, given.edges) if given.edges else given.bins


def answered(given: argparse.Namespace, ask: Callable[[query.Warehouse], Any]) -> int:
    """Asks the warehouse, and prints the answers as JSON, a table for the terminal or text."""
    wh = query.open(given.warehouse)
    with status_when_slow("asking"):
        answers = ask(wh)
    if given.json:
        print(answers.to_json())
    elif sys.stdout.isatty():
        from rich.console import Console

        Console().print(rich_table(answers))
    else:
        print(answers)
    return 0


def rich_table(answers: query.Answers[Any] | query.Histogram) -> Table:
    """Answers or a histogram as a table for the terminal, their scope below it."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    shown: query.Answers[Any]
    if isinstance(answers, query.Histogram):
        shown, caption, most = answers.bins, answers.scope_text, max(1, *answers.counts)
    else:
        shown, caption, most = answers, answers.caption, 0
    table = Table(box=SIMPLE_HEAD, caption=caption, caption_justify="left")
    for name in shown.kind.COLUMNS:
        table.add_column(name, justify="right", overflow="fold")
    if most:
        table.add_column("", min_width=BAR)
    for one in shown:
        cells = [Text(text_of(getattr(one, name))) for name in shown.kind.COLUMNS]  # a key is no markup
        table.add_row(*cells, *(["█" * round(BAR * one.count / most)] if most else []))
    return table
