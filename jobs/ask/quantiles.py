"""The commands about measures: they call the Python API and print a table, plain text or JSON.

A terminal gets a table of rich. Any other output gets the text of the answers in Python, which is never cut
or wrapped. Points and numbers of the command line are parsed here by the column's type.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tidemark import query
from tidemark.jobs.cli.exit_codes import DONE
from tidemark.jobs.cli.progress import status_when_slow
from tidemark.jobs.cli.terminal import console
from tidemark.query.answers.rendering import text_of
from tidemark.query.groups.where_text import parse_where
from tidemark.query.scans.computed import asked_measure, computed_values
from tidemark.warehouse.columns.text_values import is_whole, parse_columns, parse_number

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from rich.table import Table


BAR = 20  # characters of the longest bar of a histogram


def opened(given: argparse.Namespace) -> query.Warehouse:
    """The warehouse as it is, or with --at as it was: after the step of that number, or at that time."""
    return query.open(
        given.warehouse,
        given.storage_options,
        at=moment_of(given),
        missing=given.missing,
        duplicates=given.duplicates,
    )


def moment_of(given: argparse.Namespace) -> int | str | None:
    """The moment of --at: the number of a step, or the text of a time; None without it."""
    at: str | None = given.at
    is_step = at is not None and is_whole(at) and len(at) != len("20010331")
    return int(at) if at is not None and is_step else at


def info(given: argparse.Namespace) -> int:
    """Runs `tidemark info`."""
    facts = opened(given).info()
    print(facts.to_json() if given.json else facts)
    return DONE


def prints_answers(
    ask: Callable[[query.Warehouse, argparse.Namespace], Any],
) -> Callable[[argparse.Namespace], int]:
    """A command that prints the answers of `ask`: as JSON, as a table on a terminal, or as text."""

    def run(given: argparse.Namespace) -> int:
        wh = opened(given)
        with status_when_slow("querying"):
            answers = ask(wh, given)
        if given.json:
            print(answers.to_json(plan=given.explain))
            return DONE
        if sys.stdout.isatty():
            console().print(rich_table(answers))
        else:
            print(answers)
        if given.explain:
            print(answers.plan)
        return DONE

    return run


quantile = prints_answers(
    lambda wh, given: wh.quantile(
        [parse_phi(text) for text in given.phi], given.measure, **measure_options(wh, given)
    )
)
rank = prints_answers(
    lambda wh, given: wh.rank(
        parse_points(wh, given.measure, given.x), given.measure, **measure_options(wh, given)
    )
)
cdf = prints_answers(
    lambda wh, given: wh.cdf(
        parse_points(wh, given.measure, given.x), given.measure, **measure_options(wh, given)
    )
)
histogram = prints_answers(
    lambda wh, given: wh.histogram(bins_or_edges(wh, given), given.measure, **measure_options(wh, given))
)
summary = prints_answers(lambda wh, given: wh.summary(given.measure, **measure_options(wh, given)))
largest = prints_answers(lambda wh, given: wh.largest(given.k, given.measure, **measure_options(wh, given)))
smallest = prints_answers(lambda wh, given: wh.smallest(given.k, given.measure, **measure_options(wh, given)))


def window_and_mode(wh: query.Warehouse, given: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments `last`, `as_of`, `between`, `every` and `mode` of the Python API."""
    return {
        "last": parse_span(given.last),
        "as_of": given.as_of and _edge(wh, given.as_of),
        "between": parse_between(wh, given.between),
        "every": parse_span(getattr(given, "window_every", None)),
        **({"width": parse_span(given.width)} if getattr(given, "width", None) else {}),
        "mode": given.mode,
    }


def measure_options(wh: query.Warehouse, given: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of the Python API that questions about measures have, with those of groups."""
    return {**window_and_mode(wh, given), **group_options(wh, given)}


def group_options(wh: query.Warehouse, given: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of the Python API that say which rows and groups are asked."""
    return {
        "where": given.where and parse_where(wh.options, given.where),
        "by": given.by and parse_columns(given.by),
        "top": given.top,
        "limit": given.limit,
        **{name: getattr(given, name) for name in ("order", "least_rows") if hasattr(given, name)},
    }


def parse_between(wh: query.Warehouse, edges: list[str] | None) -> Any:
    """The start and the end of a window; None if none was given."""
    return edges and tuple(_edge(wh, text) for text in edges)


def parse_span(text: str | None) -> Any:
    """A duration, or a number of steps."""
    return int(text) if text and is_whole(text) else text


def _edge(wh: query.Warehouse, text: str) -> Any:
    """A time as text, or a step number if the warehouse has no time column; - stands for an open side."""
    if text == "-":
        return None
    return int(text) if wh.tick is None and is_whole(text.removeprefix("-")) else text


def parse_phi(text: str) -> Any:
    """The number; text that does not parse is returned as it is, and the API refuses it with a reason."""
    try:
        return float(text)
    except ValueError:
        return text


def parse_points(wh: query.Warehouse, name: str | None, texts: list[str]) -> list[Any]:
    """Points in the measure's type; the query that follows refuses a measure, or a warehouse, without one."""
    known = [*wh.measures, *([asked_measure(wh.options, name)] if computed_values(wh.options, name) else [])]
    if not known:  # without columns yet
        return list(texts)
    measure = next((measure for measure in known if measure.name == name), known[0])
    return [parse_number(measure, text) if measure.column_type.is_number else text for text in texts]


def bins_or_edges(wh: query.Warehouse, given: argparse.Namespace) -> Any:
    """The number of bins, or their edges."""
    return parse_points(wh, given.measure, given.edges) if given.edges else given.bins


def rich_table(answers: query.Answers[Any] | query.Histogram) -> Table:
    """Answers or a histogram as a table for the terminal, with their scope as the caption."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    highest = max(1, *answers.counts) if isinstance(answers, query.Histogram) else 0
    names, rows, items, caption = answers.table()
    table = Table(box=SIMPLE_HEAD, caption=caption, caption_justify="left")
    for name in names:
        table.add_column(text_of(name), justify="right", overflow="fold")
    if highest:
        table.add_column("", min_width=BAR)
    for row, item in zip(rows, items, strict=True):
        table.add_row(*map(text_of, row), *(["█" * round(BAR * item.count / highest)] if highest else []))
    return table
