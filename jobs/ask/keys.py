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


frequency = prints_answers(
    lambda wh, given: wh.frequency(_parse_keys(wh, given), **selected_options(wh, given))
)
top = prints_answers(lambda wh, given: wh.top(given.k, **selected_options(wh, given)))
hitters = prints_answers(
    lambda wh, given: wh.heavy_hitters(parse_phi(given.phi), **selected_options(wh, given))
)
hierarchy = prints_answers(
    lambda wh, given: wh.hierarchy(parse_phi(given.phi), given.separator, **key_options(wh, given))
)


def distinct(given: argparse.Namespace) -> int:
    """Runs `tidemark distinct`."""
    if not given.plan:
        return prints_answers(lambda wh, given: wh.distinct(**selected_options(wh, given)))(given)
    wh = opened(given)
    plan = planned(wh, "distinct", selected_options(wh, given))
    print(plan.to_json() if given.json else plan)
    return DONE


new_keys = prints_answers(lambda wh, given: wh.new_keys(**key_options(wh, given)))


@prints_answers
def overlap(wh: query.Warehouse, given: argparse.Namespace) -> Any:
    """Of `tidemark overlap`."""
    a, b = (parse_between(wh, edges) for edges in (given.between, given.other))
    return wh.overlap(a, b, key=parse_key_columns(given), mode=given.mode)


persistent = prints_answers(
    lambda wh, given: wh.persistent(parse_phi(given.alpha), most=given.most, **slot_options(wh, given))
)
persistence = prints_answers(
    lambda wh, given: wh.persistence(_parse_keys(wh, given), **slot_options(wh, given))
)


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
