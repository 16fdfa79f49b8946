"""A random world: a warehouse, a plain list of its rows, and operations that change both.

Each operation is carried out as users would: with the callback that kills it at a random point, and then once
more. The list says what must hold afterwards.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from tests.warehouse.private_world import secret_in
from tests.worlds.rows import Columns, Row, cut
from tidemark import query, stream, warehouse
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.ledger import ledger_table

EPS, KEY_EPS = 0.05, 0.05
HOURS = {timedelta(days=1): "1d", timedelta(hours=6): "6h"}


def secret_of(uri: str) -> Path:
    """The file with the first secret of the world at this address, or of its copy beside it."""
    return Path(uri).with_name("secret")


class Killed(Exception):
    """Stands for the end of the process in the middle of an operation."""


@dataclass
class World:
    """See the module.

    history, live: the rows that are in history, and those that streams appended since.
    keys: the columns of each key and group. groups: those of each group. measures: a letter each.
    batches: what was sent, by source and number, to be sent again.
    private: a private column of text, which is a key of which no question is drawn; None without one.
    """

    uri: str
    columns: Columns
    chance: random.Random
    keys: list[tuple[str, ...]]
    groups: list[tuple[str, ...]]
    history: list[Row] = field(default_factory=list)
    live: list[Row] = field(default_factory=list)
    batches: dict[tuple[str, int], pa.Table] = field(default_factory=dict)
    loads: dict[str, pa.Table] = field(default_factory=dict)
    readers: list[tuple[Any, list[Row], list[Row]]] = field(default_factory=list)
    reader: Any = None
    done: list[str] = field(default_factory=list)
    measures: str = "xy"
    private: ClassVar[str | None] = None

    @classmethod
    def drawn(cls, folder: Path, seed: int) -> World:
        """A warehouse without rows; with columns that were renamed, or without any until the first batch."""
        chance = random.Random(seed)
        columns = Columns.drawn(chance)
        if cls.private is not None:
            columns = replace(columns, types={**columns.types, cls.private: "text"})
        keys = chance.sample([("a",), ("b",), ("a", "b"), ("b", "c")], chance.randrange(4))
        groups = chance.sample([("c",), ("a", "c"), ("b",)], chance.randrange(3))
        uri = str(folder / f"world-{seed}")
        kappa, schema = chance.choice((2, 3)), chance.choice((columns.schema, None))
        names = columns.schema.names
        renamed = schema is not None and cls.private is None  # beside private columns names stay
        stored = dict(zip(names, [*names[1:], "last"] if renamed else names, strict=True))
        options: dict[str, Any] = {"time": stored["t"], "tick": HOURS[columns.tick]} if columns.time else {}
        declared = [[*map(stored.__getitem__, key)] for key in keys]
        if cls.private is not None:
            declared.append([stored[cls.private]])
            options |= {"private": declared[-1], "secret_file": secret_in(secret_of(uri))}
        warehouse.create(
            None,
            uri,
            [stored["x"], stored["y"]],
            keys=declared or None,
            groups=[[*map(stored.__getitem__, group)] for group in groups] or None,
            eps=EPS,
            key_eps=KEY_EPS,
            kappa=kappa,
            grace="1h",
            schema=schema and pa.schema([one.with_name(stored[one.name]) for one in schema]),
            **options,
        )
        for name, first in stored.items() if renamed else ():
            warehouse.alter(None, uri, rename={first: name})  # the name of the column before, which is free
        world = cls(uri, columns, chance, [*keys, *(one for one in groups if one not in keys)], groups)
        world.reader = query.open(uri)
        return world

    @property
    def rows(self) -> list[Row]:
        return self.history + self.live

    def step(self) -> str:
        """Carries out a random operation, and says which."""
        operations: list[tuple[int, Callable[[], None]]] = [
            (5, self._append),
            (3, self._load),
            (3, self._drain),
            (2, self._replay),
            (1, self._replay_with_other_rows),
            (1, self._maintain),
            (2, self._alter),
            (1, self._pin),
        ]
        weights, functions = zip(*operations, strict=True)
        (chosen,) = self.chance.choices(functions, weights)
        chosen()
        self.done.append(chosen.__name__)
        return str(chosen.__name__)

    def _append(self) -> None:
        source = self.chance.choice(("web", "app"))
        number = max((batch for name, batch in self.batches if name == source), default=-1)
        number += self.chance.choice((1, 1, 3))
        rows = self.columns.rows(self.chance, self.chance.choice((0, 1, 7, 60)))
        table = self.columns.table(rows)
        if self.chance.random() < 0.25:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(ledger_table, "append_batch", _kill)
                with pytest.raises(Killed):
                    self._send(source, number, table)
            assert self._send(source, number, table) in {True, False}
        else:
            assert self._send(source, number, table)
        self.batches[source, number] = table
        self.live += rows

    def _send(self, source: str, number: int, table: pa.Table) -> bool:
        return stream.append(None, self.uri, cut(self.chance, table), source=source, batch=number)

    def _replay(self) -> None:
        if self.batches and self.chance.random() < 0.5:
            (source, number), table = self.chance.choice(list(self.batches.items()))
            assert self._send(source, number, table) is False
        elif self.loads:
            name, table = self.chance.choice(list(self.loads.items()))
            warehouse.load(None, self.uri, cut(self.chance, table), name)

    def _replay_with_other_rows(self) -> None:
        """Other rows under a known name are refused, whether rows were added, or one value is another."""
        if not self.batches:
            return
        (source, number), table = self.chance.choice(list(self.batches.items()))
        others = self.columns.table(self.columns.rows(self.chance, self.chance.randrange(1, 4)))
        with pytest.raises(InputError):
            self._send(source, number, pa.concat_tables([table, others]))

    def _load(self) -> None:
        rows = self.columns.rows(self.chance, self.chance.choice((1, 9, 150)))
        name, table = f"load {len(self.loads)}", self.columns.table(rows)
        self._killed_at_times(
            lambda progress: warehouse.load(None, self.uri, cut(self.chance, table), name, progress=progress)
        )
        self.loads[name] = table
        self.history += rows

    def _drain(self) -> None:
        self._killed_at_times(lambda progress: warehouse.load(None, self.uri, progress=progress))
        self.history, self.live = self.rows, []

    def _maintain(self) -> None:
        warehouse.maintain(None, self.uri)

    def _alter(self) -> None:
        if not self.rows:
            return
        kind = self.chance.choice(("add_key", "add_group"))
        columns = self.chance.choice([("a",), ("b",), ("c",), ("c", "b"), ("a", "c")])
        added: dict[str, Any] = {kind: list(columns)}
        self._killed_at_times(lambda progress: warehouse.alter(None, self.uri, progress=progress, **added))
        known = set(map(frozenset, self.keys))
        self.keys += [columns] if frozenset(columns) not in known else []
        if kind == "add_group" and frozenset(columns) not in set(map(frozenset, self.groups)):
            self.groups.append(columns)

    def _pin(self) -> None:
        """A reader of this moment, held against the rows of this moment until two others have come."""
        if self.rows:
            pinned = (query.open(self.uri).pinned(), self.history[:], self.live[:])
            self.readers = [*self.readers[-1:], pinned]

    def _killed_at_times(self, run: Callable[[Callable[[str], None] | None], object]) -> None:
        """Runs it; of three times once it is killed at a random point before, and run again."""
        if self.chance.random() < 0.33:
            left = self.chance.randrange(1, 12)

            def kill(_: str) -> None:
                nonlocal left
                left -= 1
                if not left:
                    raise Killed

            try:
                run(kill)
            except Killed:
                self.done.append("killed")
        run(None)


def _kill(*_: object, **__: object) -> None:
    raise Killed
