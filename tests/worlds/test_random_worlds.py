"""Random worlds: operations and questions of every kind, against plain lists of rows.

`make soak` runs hundreds; the tests run a few, the same in every run.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests import soak
from tests.worlds import in_sql, keys, measures
from tests.worlds.world import World

WORLDS = int(os.environ.get("TIDEMARK_SOAK_WORLDS", "0"))
STEPS, QUESTIONS = 12, 4
ABOUT = """\
Each world draws columns of any types, keys, groups and options, and then operations: loads, batches of
streams, batches that come again with the same rows and with others, keys and groups that are added,
maintenance, kills at each callback. After each operation old, new and pinned readers are asked in Python and
SQL. Every certified bound holds against a plain list of the rows."""


def live_through(
    folder: Path,
    seed: int,
    counts: Counter[str] | None = None,
    kind: type[World] = World,
    steps: int = STEPS,
    questions: int = QUESTIONS,
) -> None:
    """One world: after each operation readers that are old, new and pinned are asked."""
    world, counts = kind.drawn(folder, seed), Counter() if counts is None else counts
    for at in range(steps):
        try:
            counts[world.step()] += 1
        except BaseException as error:
            error.add_note(f"world {seed}, operation {at}: {', '.join(world.done)}")
            raise
        if not world.rows:
            continue
        for number in range(questions):
            chance = random.Random(f"{seed} {at} {number}")
            seen = [(world.reader, world.history, world.live), *world.readers]
            asked = chance.choice(
                [ask for ask in (measures.ask, keys.ask, in_sql.ask) if ask is not keys.ask or world.keys]
            )
            wh, history, live = chance.choice(seen) if asked is not keys.ask else seen[0]
            try:
                asked(world, chance, wh, history, live)
            except Exception as error:
                error.add_note(f"world {seed}, question {number} after {at}: {', '.join(world.done)}")
                raise
            counts["questions"] += 1


@pytest.mark.parametrize("seed", range(2 * soak.DRAWS))
def test_a_few_random_worlds_answer_as_plain_lists_do(seed: int, tmp_path: Path) -> None:
    live_through(tmp_path, seed)


@pytest.mark.skipif(not WORLDS, reason="TIDEMARK_SOAK_WORLDS says how many")
def test_many_random_worlds_answer_as_plain_lists_do(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    began = time.monotonic()
    for seed in range(1_000, 1_000 + WORLDS):
        live_through(tmp_path, seed, counts)
    names = {name.strip("_").replace("_", " "): number for name, number in counts.most_common()}
    minutes = round((time.monotonic() - began) / 60)
    soak.write_section("Random worlds", ABOUT, {"worlds": WORLDS, **names, "minutes": minutes})
