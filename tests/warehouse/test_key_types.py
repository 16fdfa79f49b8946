"""Keys of every type, through loads and merges: their counts, and all that their marks list."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tests.soak import some
from tests.warehouse import test_distinct_marks as distinct
from tests.warehouse import test_persistent_marks as persistent
from tests.warehouse.keyworld import TINY, TYPES, KeyWorld
from tests.warehouse.test_distinct_marks import small_samples
from tests.warehouse.test_keys import check, rows_of

__all__ = ["small_samples"]  # a fixture
LIMITS = {"few": (40, 20, 60), "all": (2**19, 2**16, 2**19)}  # how many keys marks list


@pytest.mark.slow
@pytest.mark.usefixtures("small_samples")
@pytest.mark.parametrize(("kind", "listed"), some(product(TYPES, LIMITS), len(TYPES)))
def test_runs_and_marks_are_those_of_the_rows(
    tmp_path: Path, kind: str, listed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four steps at kappa = 2, so level 0 overflows; steps in several chunks, merged into several files.

    The edges of files cut keys.
    """
    limits = LIMITS[listed]
    persistent.limit(monkeypatch, limits)
    world = KeyWorld(tmp_path / "w", kind, tuning=TINY)
    for step in range(4):
        world.load(rows_of(kind, step), files=2)
        for marks in world.view().runs:
            persistent.check(world, marks, limits)
            distinct.check(world, marks)
    levels = [(run.run.level, run.run.first, run.run.last) for run in world.view().runs]
    assert levels == [(1, 0, 2), (0, 3, 3)]
    check(world)
