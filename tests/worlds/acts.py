"""What takes rows out of a world, puts others in their place, or brings them back: calls and what they do.

An act is a call, and what it does to the plain lists of rows: in history, and live. So the lists after two
acts at once are those of one after the other, in one order or the other.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from tests.query import in_duckdb
from tests.worlds.keys import _place
from tests.worlds.rows import DAY, FIRST, Row, cut, plain
from tests.worlds.windows import floor
from tidemark import warehouse
from tidemark.warehouse.load import bulk_batch

if TYPE_CHECKING:
    from tests.worlds.changing import ChangingWorld

OF = "_of"  # of a row in a list: its batch, as source and number
Rows: TypeAlias = tuple[list[Row], list[Row]]  # in history, and live
Test: TypeAlias = Callable[[Row], bool]
Progress: TypeAlias = Callable[[str], None] | None


class Refused(Exception):
    """An act that finds not what it needs raises InputError and changes nothing."""


@dataclass(frozen=True)
class Act:
    """A call.

    name     for the story of a world
    run      makes the call
    effect   what it does to the rows; Refused if the call is refused
    done     what else holds in the world after it
    again    whether only the same call goes on after a kill; else any writer does
    """

    name: str
    run: Callable[[Progress], object]
    effect: Callable[[Rows], Rows]
    done: Callable[[], None] = lambda: None
    again: bool = False


Maker: TypeAlias = Callable[[Any], Act | None]  # of a world


def without(rows: Rows, leaves: Test) -> Rows:
    """The rows after some left: if live ones are among them, all live rows are loaded before."""
    history, live = rows
    if any(map(leaves, live)):
        history, live = history + live, []
    return [row for row in history if not leaves(row)], live


def delete(world: ChangingWorld) -> Act:
    """By a condition, by values of columns, or by both; of three once as a purge."""
    chance, options, tests = world.chance, dict[str, Any](), list[Test]()
    if chance.random() < 0.6:
        options["where"], test = _condition(world)
        tests.append(test)
    if not tests or chance.random() < 0.2:
        options["keys"], test = _keys(world)
        tests.append(test)
    purge = chance.random() < 0.33

    def run(progress: Progress) -> object:
        return warehouse.delete(None, world.uri, **options, purge=purge, progress=progress)

    def effect(rows: Rows) -> Rows:
        return without(rows, lambda row: all(test(row) for test in tests))

    name = f"{'purge' if purge else 'delete'} {options.get('where', '')}{' by keys' * ('keys' in options)}"
    return Act(name, run, effect, world.have_purged if purge else lambda: None, again=purge)


def _condition(world: ChangingWorld) -> tuple[str, Test]:
    """Text in the language of questions, and what it means."""
    chance, types = world.chance, world.columns.types
    name = chance.choice(sorted(types))
    kind, value = types[name], world.value_of(name)
    choices: list[tuple[str, Test]] = [
        (
            f"{name} = {_literal(value)}",
            lambda row: row[name] is not None and plain(row[name]) == plain(value),
        ),
        (f"{name} IS NULL", lambda row: row[name] is None),
    ]
    if kind not in {"boolean", "binary", "text"} and plain(value) != "NaN":
        least = _place(plain(value))
        choices.append(
            (
                f"{name} > {_literal(value)}",
                lambda row: row[name] is not None and bool(_place(plain(row[name])) > least),
            )
        )
    text, test = chance.choice(choices)
    if world.columns.time and chance.random() < 0.4:
        moment, inner = world.moment(), test
        text = f"{text} AND t < {_literal(moment)}"
        return text, lambda row: inner(row) and row["t"] is not None and row["t"] < moment
    return text, test


def _literal(value: Any) -> str:
    if isinstance(value, bytes):
        return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
    if isinstance(value, Decimal):
        return f"{value}::DECIMAL(18, 2)"
    return in_duckdb.literal(value)


def _keys(world: ChangingWorld) -> tuple[pa.Table, Test]:
    """Values of some columns; NULL equals nothing."""
    chance, schema = world.chance, world.columns.schema
    names = chance.sample(schema.names, chance.choice((1, 1, 2)))
    values = [
        tuple(row[name] for name in names) for row in chance.sample(world.rows, min(2, len(world.rows)))
    ]
    made = [world.value_of(name) if name != "t" else world.moment() for name in names]
    wanted = {plain(one) for one in (*values, tuple(made)) if None not in one}
    columns = list(zip(*values, made, strict=True))
    table = pa.table([pa.array(c, schema.field(n).type) for n, c in zip(names, columns, strict=True)], names)
    return table, lambda row: plain(tuple(row[name] for name in names)) in wanted


def unload(world: ChangingWorld) -> Act | None:
    """A bulk batch that is there, or a range of a stream's batches."""
    chance = world.chance
    names = sorted(filter(world.is_there, world.bulk))
    newest = Counter(source for source, _ in world.batches)
    if names and (not newest or chance.random() < 0.6):
        name = chance.choice(names)
        of = batch_of(name, world.unloads[name])

        def unloaded() -> None:
            world.unloads[name] += 1

        return Act(
            f"unload {name}",
            lambda progress: warehouse.unload(None, world.uri, name, progress=progress),
            lambda rows: without(rows, lambda row: row[OF] == of),
            unloaded,
        )
    if not newest:
        return None
    source = chance.choice(sorted(newest))
    last = max(number for name, number in world.batches if name == source)
    first, last = sorted(chance.choices(range(last + 1), k=2))
    return Act(
        f"unload {source} {first}-{last}",
        lambda progress: warehouse.unload(
            None, world.uri, source=source, batches=(first, last), progress=progress
        ),
        lambda rows: without(rows, lambda row: row[OF][0] == source and first <= row[OF][1] <= last),
    )


def batch_of(name: str, generation: int = 0) -> tuple[str, int]:
    """The batch of a bulk load, as rows have it."""
    batch = bulk_batch(name, generation)
    return batch.source, batch.first


def load(world: ChangingWorld) -> Act:
    """A new batch, or one that was unloaded: with other rows, or with the same ones."""
    chance = world.chance
    unloaded = sorted(name for name in world.given if not world.is_there(name))
    if unloaded and chance.random() < 0.5:
        name = chance.choice(unloaded)
        same, again = world.given[name], chance.random() < 0.5
        rows = same if again else world.columns.rows(chance, len(same) + 1)
    else:
        name, again = f"load {len(world.given)}", False
        rows = world.columns.rows(chance, chance.choice((1, 9, 40)))
    generation = world.unloads[name]
    come = world.tagged(rows, batch_of(name, generation))
    table = world.columns.table(come)

    def loaded() -> None:
        world.given[name], world.bulk[name] = come, generation
        world.came[batch_of(name, generation)] = len(come)

    return Act(
        f"load {name}",
        lambda progress: warehouse.load(
            None, world.uri, cut(random.Random(0), table), name, again=again, progress=progress
        ),
        lambda rows: (rows[0] + come, rows[1]),
        loaded,
        again=True,
    )


def expire(world: ChangingWorld) -> Act | None:
    """The rows of ticks before a moment, or before the latest one that an expiry had."""
    if not world.columns.time:
        return None
    tick = world.columns.tick
    before = FIRST + world.chance.randrange(-2, 10) * DAY + world.chance.choice((0, 7)) * timedelta(hours=1)
    horizon = floor(before, tick)

    def is_old(row: Row) -> bool:
        latest = max(horizon, world.horizon or horizon)
        return row["t"] is not None and row["t"] < latest

    def expired() -> None:
        world.horizon = max(horizon, world.horizon or horizon)

    return Act(
        f"expire {before}",
        lambda progress: warehouse.expire(None, world.uri, before, progress=progress),
        lambda rows: without(rows, is_old),
        expired,
    )


def correct(world: ChangingWorld) -> Act | None:
    """By before-images, by columns that identify a row, or by a change feed."""
    chance, names = world.chance, world.columns.schema.names
    kind = chance.choice(("before", "on", "changes"))
    columns = chance.sample(names, min(len(names), 3)) if kind == "on" else names
    old = chance.sample(unique := _unique(world, columns, kind), min(len(unique), chance.choice((0, 1, 3))))
    new = world.columns.rows(chance, len(old) if kind == "on" else chance.choice((0, 1, 4)))
    for row, was in zip(new, old, strict=False) if kind == "on" else ():
        row.update((name, was[name]) for name in columns)
    if not new if kind == "on" else not old and not new:
        return None
    name = f"fix {next(world.numbers)}"
    come = world.tagged(new, batch_of(name))
    if kind == "changes":
        feed = [*((row, "delete") for row in old), *((row, "insert") for row in come)]
        table = world.columns.table([row for row, _ in feed])
        changes = table.append_column("_change_type", pa.array([change for _, change in feed], pa.string()))
        options: dict[str, Any] = {"changes": changes}
    else:
        options = {"rows": world.columns.table(come)}
        options |= {"on": columns} if kind == "on" else {"before": world.columns.table(old)}
    leave = set(map(id, old))

    def effect(rows: Rows) -> Rows:
        if not leave <= {id(row) for row in (*rows[0], *rows[1])}:
            raise Refused
        history, live = without(rows, lambda row: id(row) in leave)
        return history + come, live

    def corrected() -> None:
        world.bulk[name] = 0
        world.came[batch_of(name)] = len(come)

    return Act(
        f"correct by {kind}: {len(old)} by {len(come)}",
        lambda progress: warehouse.correct(None, world.uri, batch=name, progress=progress, **options),
        effect,
        corrected,
    )


def _unique(world: ChangingWorld, columns: Sequence[str], kind: str) -> list[Row]:
    """The rows whose values in the columns no other row has; where they identify a row, without NULL."""
    values = [plain(tuple(row[name] for name in columns)) for row in world.rows]
    counts = Counter(values)
    return [
        row
        for row, value in zip(world.rows, values, strict=True)
        if counts[value] == 1 and not (kind == "on" and None in value)
    ]


def restore(world: ChangingWorld) -> Act | None:
    """A removal that was not undone before, and whose old files are there."""
    if not world.removed:
        return None
    number = world.chance.choice(sorted(world.removed))
    name = f"restored removal {number}"
    come = world.tagged(world.removed[number], batch_of(name))

    def restored() -> None:
        world.removed.pop(number, None)
        world.bulk[name] = 0
        world.came[batch_of(name)] = len(come)

    return Act(
        f"restore {number}",
        lambda progress: warehouse.restore(world.uri, removal=number, progress=progress),
        lambda rows: (rows[0] + come, rows[1]),
        restored,
        again=True,
    )


def alter(world: ChangingWorld) -> Act | None:
    """Measures, keys and groups come and go, columns get wider, numbers are set."""
    chance = world.chance
    asked, done = chance.choice((_set, _toggled, _dropped, _widened))(world)
    if not asked:
        return None
    return Act(
        f"alter {asked}",
        lambda progress: warehouse.alter(None, world.uri, progress=progress, **asked),
        lambda rows: rows,
        done,
        again=True,
    )


Altered: TypeAlias = tuple[dict[str, Any], Callable[[], None]]


def _nothing() -> None:
    pass


def _set(world: ChangingWorld) -> Altered:
    values = {"kappa": (2, 3, 4), "eps": (0.05, 0.02), "key_eps": (0.05, 0.03), "retention": ("30000d",)}
    name = world.chance.choice(sorted(values))
    return {name: world.chance.choice(values[name])}, _nothing


def _toggled(world: ChangingWorld) -> Altered:
    """The second of two measures leaves, or the one that lacks comes again."""
    if len(world.measures) > 1:
        gone = world.chance.choice(world.measures)
        return {"drop_measure": gone}, lambda: world.have_measures(world.measures.replace(gone, ""))
    new = "y" if world.measures == "x" else "x"
    return {"add_measure": new}, lambda: world.have_measures(world.measures + new)


def _dropped(world: ChangingWorld) -> Altered:
    groups = set(map(frozenset, world.groups))
    alone = [key for key in world.keys if frozenset(key) not in groups]
    if alone and world.chance.random() < 0.5:
        key = world.chance.choice(alone)
        return {"drop_key": list(key)}, lambda: world.have_dropped(world.keys, key)
    if not world.groups:
        return {}, _nothing
    group = world.chance.choice(world.groups)
    return {"drop_group": list(group)}, lambda: world.have_dropped(world.groups, group)


def _widened(world: ChangingWorld) -> Altered:
    wider = {"int": "long", "float": "double"}
    names = sorted(name for name, kind in world.columns.types.items() if kind in wider)
    if not names:
        return {}, _nothing
    name = world.chance.choice(names)
    kind = wider[world.columns.types[name]]
    return {"widen": {name: kind}}, lambda: world.have_types({name: kind})
