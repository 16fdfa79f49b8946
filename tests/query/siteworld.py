"""Several small warehouses, and a plain list of all their rows."""

from __future__ import annotations

import math
import random
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidemark import query, stream, warehouse

SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", tz="UTC")),
        ("x", pa.float64()),
        ("d", pa.decimal128(9, 2)),
        ("k", pa.string()),
        ("g", pa.string()),
    ]
)
OPTIONS: dict[str, Any] = {"key": "k", "groups": ["g"], "time": "at", "tick": "1 day"}
FIRST = datetime(2024, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)
EPS = (0.01, 0.05, 0.02, 0.1)  # of the warehouses
Row = dict[str, Any]


def drawn(chance: random.Random, rows: int, days: tuple[int, int] = (0, 10)) -> list[Row]:
    """Rows of some days; some have no time, no value or NaN."""
    hours = 24 * days[0], 24 * days[1]
    return [
        {
            "at": None if chance.random() < 0.03 else FIRST + timedelta(hours=chance.randrange(*hours)),
            "x": chance.choice([float(chance.randrange(30)), chance.random() * 100, math.nan, None]),
            "d": chance.choice([Decimal(chance.randrange(-500, 500)) / 100, None]),
            "k": chance.choice("abcdefghij") if chance.random() < 0.8 else f"rare {chance.randrange(400)}",
            "g": chance.choice(["p", "q", "r", None]),
        }
        for _ in range(rows)
    ]


def table(rows: list[Row], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=schema)


@dataclass
class Sites:
    """Warehouses by name, the rows of each, and one warehouse `whole` that has them all in its history."""

    folder: Path
    rows: dict[str, list[Row]]
    live: dict[str, list[Row]]

    @property
    def uris(self) -> dict[str, str]:
        return {name: str(self.folder / name) for name in self.rows}

    @property
    def all_rows(self) -> list[Row]:
        return [row for rows in self.rows.values() for row in rows]

    def copy(self, folder: Path) -> Sites:
        """One to be changed, where this one is kept for the next test."""
        for name in self.rows:
            shutil.copytree(self.folder / name, folder / name)
        rows, live = ({name: list(own) for name, own in of.items()} for of in (self.rows, self.live))
        return Sites(folder, rows, live)

    def open(self, **options: Any) -> query.Warehouse:
        return query.open(self.uris, **options)

    @cached_property
    def reader(self) -> query.Warehouse:
        return self.open()

    @cached_property
    def forgetful(self) -> query.Warehouse:
        """Its memory does not take the live rows."""
        return self.open(memory=1000)

    @cached_property
    def whole(self) -> query.Warehouse:
        uri = self.folder / "whole"
        warehouse.create(None, uri, ["x", "d"], schema=SCHEMA, **OPTIONS)
        warehouse.load(None, uri, table(self.all_rows), "all")
        return query.open(uri)

    def stream(self, name: str, rows: list[Row], batch: int) -> None:
        stream.append(None, self.folder / name, table(rows), source="s", batch=batch, ahead=None)
        self.rows[name] += rows
        self.live[name] += rows

    def load_live(self, name: str) -> None:
        warehouse.load(None, self.folder / name)
        self.live[name] = []


def made(folder: Path, seed: int, sites: int) -> Sites:
    """Each site with one to three loads and up to two live batches; the sources have the same names."""
    chance = random.Random(seed)
    world = Sites(folder, {}, {})
    for number in range(sites):
        name = f"site {number}"
        warehouse.create(None, folder / name, ["x", "d"], schema=SCHEMA, **OPTIONS, eps=EPS[number])
        world.rows[name], world.live[name] = [], []
        for load in range(chance.randint(1, 3)):
            rows = drawn(chance, chance.randint(1, 300))
            warehouse.load(None, folder / name, table(rows), f"load {load}")
            world.rows[name] += rows
        for batch in range(chance.randint(0, 2)):
            world.stream(name, drawn(chance, chance.randint(1, 150)), batch)
    return world


def of_keys(folder: Path, keys: dict[str, list[str]]) -> Sites:
    """Each site with one load, and a row of the first day for each of its keys, which are groups, too."""
    world = Sites(folder, {}, {})
    for name, own in keys.items():
        rows: list[Row] = [
            {"at": FIRST, "x": float(place), "d": None, "k": key, "g": key} for place, key in enumerate(own)
        ]
        warehouse.create(None, folder / name, ["x", "d"], schema=SCHEMA, **OPTIONS)
        warehouse.load(None, folder / name, table(rows), "all")
        world.rows[name], world.live[name] = rows, []
    return world
