"""Plans tell the truth about what was read."""

from __future__ import annotations

import json
import pickle
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.query.groupworld import HOUR, START, GroupWorld
from tests.query.ways import Ask, Patch, forced
from tidemark.query.answers.plan import Plan
from tidemark.query.keys import key_relation
from tidemark.query.reading import block_reader, sql_text
from tidemark.query.reading.costs import Rates
from tidemark.query.scans import asked_rows


@pytest.fixture(scope="module")
def world(late_and_live: GroupWorld) -> GroupWorld:
    return late_and_live


class Counted:
    """What was really read: row groups of runs by ourselves, and files by DuckDB."""

    def __init__(self, patch: Patch) -> None:
        self.files: set[str] = set()
        self.blocks = self.rows = self.bytes = 0
        right = block_reader.BlockReader.read

        def read(blocks: Any, wanted: block_reader.RowGroups) -> Any:
            path, store = f"{wanted.root}/{wanted.file.path}", wanted.file.store
            assert store is not None
            self.files.add(path)
            footer = pq.read_metadata(store.table(path))
            for group in wanted.groups:
                self._add(footer.row_group(group), set(wanted.columns))
            self.blocks += len(wanted.groups)
            return right(blocks, wanted)

        patch.setattr(block_reader.BlockReader, "read", read)
        paths = sql_text.parquet_rows

        def of_events(files: Any) -> str:
            for path in files:
                self.files.add(path)
                footer = pq.read_metadata(path)
                for group in range(footer.num_row_groups):
                    self._add(footer.row_group(group), {"value", "origin"})
            return paths(files)

        def of_keys(files: Any) -> str:
            for path in files:
                self.files.add(path)
                footer = pq.read_metadata(path)
                self.blocks += footer.num_row_groups
                self.rows += footer.num_rows
                self.bytes += Path(path).stat().st_size
            return paths(files)

        patch.setattr(asked_rows, "parquet_rows", of_events)
        patch.setattr(key_relation, "parquet_rows", of_keys)

    def _add(self, group: Any, columns: set[str]) -> None:
        self.rows += group.num_rows
        chunks = [group.column(i) for i in range(group.num_columns)]
        self.bytes += sum(one.total_compressed_size for one in chunks if one.path_in_schema in columns)

    @property
    def all(self) -> tuple[int, ...]:
        return len(self.files), self.blocks, self.rows, self.bytes


def read_of(plan: Plan) -> tuple[int, ...]:
    return plan.files, plan.blocks, plan.rows, plan.bytes


TOLD: list[tuple[str, Ask]] = [
    ("index", lambda wh: wh.quantile(0.5)),
    ("index", lambda wh: wh.quantile(0.5, where={"origin": "a"})),
    ("runs", lambda wh: wh.quantile([0.5], by="origin")),
    ("scan", lambda wh: wh.quantile([0.5], by="origin")),
    ("scan", lambda wh: wh.top(2, key="origin")),
    ("scan", lambda wh: wh.distinct(key="origin", mode="exact")),
    ("index", lambda wh: wh.frequency("a", key="origin")),
]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    rows: list[Any] = [(START + i % 40 * HOUR, "abc"[i * 7 % 3], i % 5, float(i), None) for i in range(200)]
    return GroupWorld.of(tmp_path_factory.mktemp("world"), [(True, rows[:150]), (True, rows[50:])])


def untrue(world: GroupWorld) -> list[Any]:
    """The plans that do not tell what was read; each question is asked again, with files compared before."""
    wrong = []
    for way, question in TOLD:
        with forced(way):
            if way == "scan":
                question(world.open())
            wh = world.open()
            with pytest.MonkeyPatch.context() as patch:
                counted = Counted(patch)
                plan = question(wh).plan
        assert plan.way == way
        if read_of(plan) != counted.all:
            wrong.append((way, read_of(plan), counted.all))
    return wrong


def test_a_plan_tells_what_was_read(history: GroupWorld, monkeypatch: Patch) -> None:
    assert untrue(history) == []
    monkeypatch.setattr(block_reader, "_count", lambda *_: None)  # the broken variant
    assert untrue(history)


def test_a_plan_is_told_in_words_and_as_json(world: GroupWorld) -> None:
    wh = world.open()
    answers = wh.quantile([0.1, 0.9], by="origin")
    plan = answers.plan
    assert plan is not None
    assert plan is answers[0].plan
    assert plan.estimates.keys() >= {"index", "scan"}
    lines = str(plan).splitlines()
    assert re.fullmatch(r"way: (index|runs|scan)", lines[0])
    assert re.fullmatch(r"read: \d+ files, \d+ blocks, \d+ rows, [\d,]+ bytes, 0 rounds", lines[1])
    assert re.fullmatch(r"estimates: (\w+ [\d.]+ ms(, )?){2,3}", lines[2])
    assert json.loads(answers.to_json(plan=True))["plan"]["way"] == plan.way
    assert "plan" not in json.loads(answers.to_json())
    assert pickle.loads(pickle.dumps(answers)).plan == plan
    again = wh.quantile([0.1, 0.9], by="origin")
    assert list(wh.quantile([0.1, 0.9], by="origin")) == list(again)  # a plan does not count
    assert wh.quantile(0.5, by="origin", groups=[]).plan is not None
    for answer in (wh.overlap(None, None, key="origin"), wh.summary(), wh.distinct(key="origin")):
        assert answer.plan is not None
    assert {field.name for field in fields(Rates)} >= {"bounds", "statement"}
