"""Worlds from which rows leave: any operations in any order, against plain lists of rows.

`make soak` runs hundreds; the tests run a few, the same in every run.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from tests import soak
from tests.worlds.changing import ChangingWorld
from tests.worlds.rotating import RotatingWorld
from tests.worlds.test_random_worlds import live_through
from tidemark.warehouse.ingest import private_rows
from tidemark.warehouse.private import secrets

WORLDS = int(os.environ.get("TIDEMARK_SOAK_WORLDS", "0"))
STEPS = 24
ABOUT = """\
As random worlds, with rows that leave: unloads, deletes by conditions and by keys, purges, corrections by
before-images, columns and change feeds, expiries, restores; measures, keys, groups and columns that come, go,
get wider and exchange their names; copies and repairs; kills at each callback, after which the same call or
another one goes on; and two calls at once. Every third world has a private column, whose secret is rotated.
After each operation the table of events and the history are those of the list, verify finds nothing, and
every certified bound of old, new and pinned readers holds."""


@pytest.fixture(autouse=True)
def no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a world are gone after the test."""
    monkeypatch.setattr(secrets, "_known", {})


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_few_changing_worlds_answer_as_plain_lists_do(seed: int, tmp_path: Path) -> None:
    live_through(tmp_path, seed, None, ChangingWorld, steps=5, questions=2)


@pytest.mark.slow
def test_a_world_whose_secret_is_rotated_answers_as_plain_lists_do(tmp_path: Path) -> None:
    live_through(tmp_path, 2, None, RotatingWorld, steps=3, questions=1)
    assert [*tmp_path.glob("*-secrets-*")]


@pytest.mark.slow
def test_a_world_finds_tokens_that_are_not_wrapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_rows.WrappedTokens, "_wrapped", lambda _, tokens: tokens)
    with pytest.raises(KeyError):
        live_through(tmp_path, 2, None, RotatingWorld, steps=3, questions=1)


@pytest.mark.slow
@pytest.mark.skipif(not WORLDS, reason="TIDEMARK_SOAK_WORLDS says how many")
def test_many_random_changing_worlds_answer_as_plain_lists_do(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    began = time.monotonic()
    for seed in range(1_000, 1_000 + WORLDS):
        live_through(tmp_path, seed, counts, ChangingWorld if seed % 3 else RotatingWorld, STEPS)
    names = {name.strip("_").replace("_", " "): number for name, number in counts.most_common()}
    minutes = round((time.monotonic() - began) / 60)
    soak.write_section("Changing worlds", ABOUT, {"worlds": WORLDS, **names, "minutes": minutes})
