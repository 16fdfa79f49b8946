"""A description of one or several warehouses, for `info()` and the repr: columns, span, last batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidemark.query.reading.windows import rows_in_the_future, shown_window, tick_range
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.events.reader import BULK, BatchRange
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.snapshots.snapshot import Snapshot
from tidemark.warehouse.snapshots.system_tables import Contents

LAST_BATCHES = 5
_ADDED = ("steps", "live_batches", "live_rows", "rows_in_the_future")  # of several warehouses


def about(snapshot: Snapshot) -> dict[str, Any]:
    """The facts by name.

    span: the start of the first tick with a time and the end of the last, exclusive; steps without a time
        column. None without such rows.
    rows_in_the_future: rows in ticks that begin after the clock; `last` counts back from the tick before.
    last_batches: the newest ranges of batches, the newest last, each with its rows and its step: "live" for
        batches that no load has moved into history. A bulk load called X is the source `load:X`.
    """
    options = snapshot.options
    view = snapshot.view(options.measure_names[0]) if options.columns else None
    ticks = view and tick_range(view)
    shown = ticks and shown_window(Window(ticks[0], ticks[1] + 1), options.grid)
    contents = snapshot.contents() if options.columns else None
    loaded = _loaded(contents) if contents else []
    batches = {
        _range_text(row["source"], row["first_batch"], row["last_batch"]): {
            "rows": contents.counts[BatchRange(row["source"], row["first_batch"], row["last_batch"])],
            "step": row["step"],
        }
        for row in loaded[-LAST_BATCHES:]
        if contents
    }
    live = view.live if view else ()
    for one in contents.live[-LAST_BATCHES:] if contents else ():
        rows = sum(row.rows for row in live if one.holds(row.batches.source, row.batches.first))
        batches[_range_text(one.source, one.first, one.last)] = {"rows": rows, "step": "live"}
    return {
        "time": options.time,
        "tick_seconds": None if options.tick_us is None else options.tick_us / 1e6,
        "span": dict(zip(("start", "end"), shown, strict=True)) if shown else None,
        "rows_in_the_future": rows_in_the_future(view, options.grid) if view else 0,
        "key_columns": _texts(options.key_names),
        "group_columns": _texts(options.group_names),
        "last_batches": dict(list(batches.items())[-LAST_BATCHES:]),
    }


def about_several(sites: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The facts of several warehouses together, and of each, from `info` of each by its name.

    Numbers are summed, and `span` reaches from the first tick to the last. The batches are named with their
    warehouse. Facts without a meaning for all together, such as versions, are only told for each.
    """
    every = list(sites.values())
    spans = [facts["span"] for facts in every if facts["span"] is not None]
    ends = [span["end"] for span in spans]
    first = every[0]
    same = ("time", "tick_seconds", "key_columns", "group_columns")
    return {
        **{name: first[name] for name in same},
        **{name: sum(facts[name] for facts in every) for name in _ADDED},
        "eps": max(facts["eps"] for facts in every),
        "span": None
        if not spans
        else {
            "start": min(span["start"] for span in spans),
            "end": None if None in ends else max(ends),
        },
        "rejected": _added(facts["rejected"] for facts in every),
        "last_batches": {
            f"{name}: {batch}": facts
            for name, own in sites.items()
            for batch, facts in own["last_batches"].items()
        },
        **{
            role: {
                name: _runs_together([facts[role][name] for facts in every if name in facts[role]])
                for name in first[role]
            }
            for role in ("measures", "keys", "groups")
            if role in first
        },
        "warehouses": sites,
    }


def _runs_together(every: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    added = {name: sum(facts[name] for facts in every) for name in ("rows", "bytes", "files")}
    levels = _added(facts["runs_by_level"] for facts in every)
    return {"type": every[0]["type"], **added, "runs_by_level": dict(sorted(levels.items()))}


def _added(every: Iterable[Mapping[Any, int]]) -> dict[Any, int]:
    found: dict[Any, int] = {}
    for numbers in every:
        for name, number in numbers.items():
            found[name] = found.get(name, 0) + number
    return found


def _loaded(contents: Contents) -> list[dict[str, Any]]:
    plans = contents.plans("step", "source", "first_batch", "last_batch", "rows")
    return [row for row in plans if row["step"] <= contents.last_step]


def repr_of(uris: Sequence[str], options: Options) -> str:
    """The warehouse, or several, in one line, from what is in memory."""
    roles = {
        "measures": list(options.measure_names),
        "keys": _texts(options.key_names),
        "groups": _texts(options.group_names),
        "time": [options.time] if options.time else [],
    }
    parts = [f"{role} {', '.join(names)}" for role, names in roles.items() if names]
    return f"Warehouse({', '.join(map(repr, uris))}: {'; '.join([*parts, f'eps {options.eps:g}'])})"


def _texts(columns: Iterable[Iterable[str]]) -> list[str]:
    """Each key's columns as the command takes them: "origin,dest"."""
    return [",".join(names) for names in columns]


def _range_text(source: str, first: int, last: int) -> str:
    if source.startswith(BULK):
        return source
    return f"{source} {first}" if first == last else f"{source} {first} to {last}"
