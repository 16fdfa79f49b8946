"""The options of several warehouses that are asked together: what must be equal, and what may differ.

Values, keys and ticks of one warehouse are compared with those of another as they are stored. So these must
be equal: the names and the types of measures, keys and groups (decimals have their scale in the type), the
companions, the time column and the width of a tick, the private columns and their secret. With keys, so must
key_delta, from which the number of rows of a sketch follows. The error options, kappa, the grace and the
order of the names may differ: the greatest error of all holds for all, and so does the newest moment before
which rows have expired. Other columns are common if all warehouses have them with one type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidemark.warehouse.columns.column_types import type_text
from tidemark.warehouse.errors import EmptyWindow, InputError
from tidemark.warehouse.settings.options import Options


def common_options(by_name: Mapping[str, Options]) -> Options:
    """The options of all warehouses together, given by their names.

    InputError if something differs that must be equal: it has both values. EmptyWindow if a warehouse has no
    columns yet.
    """
    (name, first), *others = by_name.items()
    for own_name, options in by_name.items():
        if not options.columns:
            raise EmptyWindow(
                f"the warehouse {own_name!r} has no rows yet: its first batch will fix the columns' types. "
                "Ask the others without it until then."
            )
    for other_name, other in others:
        own, theirs = _equal_facts(first), _equal_facts(other)
        for what, value in own.items():
            _check_equal(what, {name: value, other_name: theirs[what]})
        for column in _named(first):
            kinds = {name: dict(first.columns)[column], other_name: dict(other.columns)[column]}
            _check_equal(f"the type of {column!r}", {one: type_text(kind) for one, kind in kinds.items()})
    others_columns = [set(options.columns) for options in by_name.values()]
    return replace(
        first,
        eps=max(options.eps for options in by_name.values()),
        key_eps=max(options.key_eps for options in by_name.values()),
        horizon=max((one.horizon for one in by_name.values() if one.horizon is not None), default=None),
        columns=tuple(column for column in first.columns if all(column in own for own in others_columns)),
        index_columns=(),
        built_from={},
        dropped={},
    )


def _equal_facts(options: Options) -> dict[str, Any]:
    """The facts that must be equal in all warehouses, by their names in errors."""
    return {
        "the measures": sorted(options.measure_names),
        "the time column": options.time,
        "the tick in microseconds": options.tick_us,
        "the keys": sorted(map(list, options.key_names)),
        "the groups": sorted(map(list, options.group_names)),
        "key_delta": options.key_delta if options.key_names else None,
        "the private columns": sorted(options.private),
        "the fingerprint of their secret": options.fingerprint,
        "the companions": sorted(map(str, options.companion_names)),
    }


def _named(options: Options) -> list[str]:
    """The columns that measures, keys, groups and the time name, each once."""
    time = [options.time] if options.time else []
    return list(dict.fromkeys([*options.measure_names, *time, *options.key_columns]))


def _check_equal(what: str, values: Mapping[str, Any]) -> None:
    (first, one), (second, other) = values.items()
    if one != other:
        raise InputError(
            f"{what} must be equal in warehouses that are asked together: {first!r} has {one!r}, {second!r} "
            f"has {other!r}. Ask them one by one."
        )
