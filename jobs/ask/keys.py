"""What the commands about keys do (jobs/cli/options/asking_keys.py has their options)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidemark.jobs.ask.quantiles import (
    group_options,
    opened,
    parse_between,
    parse_phi,
    parse_span,
    prints_answers,
    window_and_mode,
)
from tidemark.jobs.cli.exit_codes import DONE
from tidemark.query.sql.named_call import planned
from tidemark.warehouse.columns.text_values import parse_columns, parse_key

if TYPE_CHECKING:
    import argparse

    from tidemark import query


@prints_answers
def frequency(wh: query.Warehouse, given: argparse.Namespace) -> Any:
    """Of `tidemark freq`."""
    return wh.frequency(_parse_keys(wh, given), **selected_options(wh, given))


@prints_answers
def top(wh: query.Warehouse, given: argparse.Namespace) -> Any:
    """Of `tidemark top`."""
    return wh.top(given.k, **selected_options(wh, given))


@prints_answers
def hitters(wh: query.Warehouse, given: argparse.Namespace) -> Any:
    """Of `tidemark hitters`."""
    return wh.heavy_hitters(parse_phi(given.phi), **selected_options(wh, given))


@prints_answers
def hierarchy(wh: query.Warehouse, given: argparse.Namespace) -> Any:
    """Of `tidemark hierarchy`."""
    return wh.hierarchy(parse_phi(given.phi), given.separator, **key_options(wh, given))


def distinct(given: argparse.Namespace) -> int:
    """Runs `tidemark distinct`."""
    return _planned_distinct(given) if given.plan else _distinct(given)


@prints_answers
def _distinct(wh: query.Warehouse, given: argparse.Namespace) -> Any:
    return wh.distinct(**selected_options(wh, given))


def _planned_distinct(given: argparse.Namespace) -> int:
    wh = opened(given)
    plan = planned(wh, "distinct", selected_options(wh, given))
    print(plan.to_json() if given.json else plan)
    return DONE


@prints_answers
def new_keys(wh: query.Warehouse, given: argparse.Namespace) -> Any:
    """Of `tidemark new-keys`."""
    return wh.new_keys(**key_options(wh, given))


@prints_answers
def overlap(wh: query.Warehouse, given: argparse.Namespace) -> Any:
    """Of `tidemark overlap`."""
    a, b = (parse_between(wh, edges) for edges in (given.between, given.other))
    return wh.overlap(a, b, key=parse_key_columns(given), mode=given.mode)


@prints_answers
def persistent(wh: query.Warehouse, given: argparse.Namespace) -> Any:
    """Of `tidemark persistent`."""
    return wh.persistent(parse_phi(given.alpha), most=given.most, **slot_options(wh, given))


@prints_answers
def persistence(wh: query.Warehouse, given: argparse.Namespace) -> Any:
    """Of `tidemark persistence`."""
    return wh.persistence(_parse_keys(wh, given), **slot_options(wh, given))


def slot_options(wh: query.Warehouse, given: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of the Python API that questions about slots have."""
    options = {name: value for name, value in key_options(wh, given).items() if name != "every"}
    return {**options, "slot": parse_span(given.slot)}


def key_options(wh: query.Warehouse, given: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of the Python API that all questions about keys have."""
    return {**window_and_mode(wh, given), "key": parse_key_columns(given)}


def selected_options(wh: query.Warehouse, given: argparse.Namespace) -> dict[str, Any]:
    """The options of `key_options`, and those that say which rows and groups are asked."""
    return {**key_options(wh, given), **group_options(wh, given)}


def parse_key_columns(given: argparse.Namespace) -> Any:
    """The key that the option --key names; None without it."""
    return None if given.key is None else parse_columns(given.key)


def _parse_keys(wh: query.Warehouse, given: argparse.Namespace) -> list[Any]:
    """The keys in the type of the key column; without a key column the texts, which the query refuses."""
    if not wh.keys:
        return list(given.value)
    key = wh.options.key_named(parse_key_columns(given))
    return [parse_key(key, text) for text in given.value]
