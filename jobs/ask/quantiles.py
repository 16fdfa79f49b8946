"""The commands about measures: they call the Python API and print a table, plain text or JSON.

A terminal gets a table of rich. Any other output gets the text of the answers in Python, which is never cut
or wrapped. Points and numbers of the command line are parsed here by the column's type.
"""

from __future__ import annotations

import sys
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from tidemark import query
from tidemark.jobs.cli.exit_codes import DONE
from tidemark.jobs.cli.progress import status_when_slow
from tidemark.query.answers.rendering import text_of
from tidemark.warehouse.errors import InputError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from rich.table import Table

    from tidemark.warehouse.columns.keys import Key
    from tidemark.warehouse.columns.value_encoding import Measure


BAR = 20  # characters of the longest bar of a histogram


def info(given: argparse.Namespace) -> int:
    """Runs `tidemark info`."""
    facts = query.open(given.warehouse).info()
    print(facts.to_json() if given.json else facts)
    return DONE


def quantile(given: argparse.Namespace) -> int:
    """Runs `tidemark quantile`."""
    return print_answers(
        given,
        lambda wh: wh.quantile(
            [parse_phi(text) for text in given.phi], given.measure, **window_and_mode(wh, given)
        ),
    )


def rank(given: argparse.Namespace) -> int:
    """Runs `tidemark rank`."""
    return print_answers(
        given,
        lambda wh: wh.rank(
            parse_points(wh, given.measure, given.x), given.measure, **window_and_mode(wh, given)
        ),
    )


def cdf(given: argparse.Namespace) -> int:
    """Runs `tidemark cdf`."""
    return print_answers(
        given,
        lambda wh: wh.cdf(
            parse_points(wh, given.measure, given.x), given.measure, **window_and_mode(wh, given)
        ),
    )


def histogram(given: argparse.Namespace) -> int:
    """Runs `tidemark histogram`."""
    return print_answers(
        given, lambda wh: wh.histogram(bins_or_edges(wh, given), given.measure, **window_and_mode(wh, given))
    )


def window_and_mode(wh: query.Warehouse, given: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments `last`, `between` and `mode` of the Python API."""
    last = int(given.last) if given.last and given.last.isdecimal() else given.last
    between = given.between and tuple(_edge(wh, text) for text in given.between)
    return {"last": last, "between": between, "mode": given.mode}


def _edge(wh: query.Warehouse, text: str) -> Any:
    """A time as text, or a step number if the warehouse has no time column; - stands for an open side."""
    if text == "-":
        return None
    return int(text) if wh.tick is None and text.lstrip("-").isdecimal() else text


def parse_phi(text: str) -> Any:
    """The number; text that does not parse is returned as it is, and the API refuses it with a reason."""
    try:
        return float(text)
    except ValueError:
        return text


def parse_points(wh: query.Warehouse, name: str | None, texts: list[str]) -> list[Any]:
    """Points in the measure's type; an unknown measure is refused by the query that follows."""
    measure = next((measure for measure in wh.measures if measure.name == name), wh.measures[0])
    return [parse_number(measure, text) if measure.column_type.is_number else text for text in texts]


def parse_number(column: Measure | Key, text: str) -> Any:
    """The text as a number of the column's type: float, int or Decimal; InputError if it does not parse.

    For a double column the text becomes a double: the decimal 0.1 is less than the double that is stored.
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


def bins_or_edges(wh: query.Warehouse, given: argparse.Namespace) -> Any:
    """The number of bins, or their edges."""
    return parse_points(wh, given.measure, given.edges) if given.edges else given.bins


def print_answers(given: argparse.Namespace, query_of: Callable[[query.Warehouse], Any]) -> int:
    """Calls `query_of` with the warehouse and prints the answers: JSON, a table on a terminal, or text."""
    wh = query.open(given.warehouse)
    with status_when_slow("querying"):
        answers = query_of(wh)
    if given.json:
        print(answers.to_json())
    elif sys.stdout.isatty():
        from rich.console import Console

        Console().print(rich_table(answers))
    else:
        print(answers)
    return DONE


def rich_table(answers: query.Answers[Any] | query.Histogram) -> Table:
    """Answers or a histogram as a table for the terminal, with their scope as the caption."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    rows: query.Answers[Any]
    if isinstance(answers, query.Histogram):
        rows, caption, highest = answers.bins, answers.scope_text, max(1, *answers.counts)
    else:
        rows, caption, highest = answers, answers.caption, 0
    table = Table(box=SIMPLE_HEAD, caption=caption, caption_justify="left")
    for name in rows.kind.COLUMNS:
        table.add_column(name, justify="right", overflow="fold")
    if highest:
        table.add_column("", min_width=BAR)
    for row in rows:
        cells = [Text(text_of(getattr(row, name))) for name in rows.kind.COLUMNS]  # Text: no markup in keys
        table.add_row(*cells, *(["█" * round(BAR * row.count / highest)] if highest else []))
    return table
