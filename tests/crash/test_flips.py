"""Damage never makes a wrong answer, nor a wrong run, and a repair makes all right again. See flips.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import soak
from tests.crash.flips import build

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SOAK_FLIPS = int(os.environ.get("TIDEMARK_SOAK_FLIPS", "0"))  # `make soak` sets it
DAMAGES = SOAK_FLIPS or 3
ABOUT = """A warehouse is damaged at random, once or twice: a bit, a byte or eight of a file change, its
end is cut off, or it is removed; the newest entry of a table's log is cut, a table is put back by some
versions, or its folder is removed. Then a new reader is asked some of all questions, in all modes, and a
repair follows; every tenth time a load that merges comes instead. Each answer was the one of the sound
warehouse, or an error that names what is damaged; no load made a wrong run of it; after the repair all
was right again. `right` counts damage to what was not asked for, `behind` the trials in which rows were
missing because the ledger was put back: that cannot be told from a batch whose process was killed."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the sound warehouse lies, of which each trial damages a copy."""
    made = tmp_path_factory.mktemp("flips")
    build(made / "sound")
    return made


def flips(folder: Path, damages: int, *broken: str, seed: int = 7) -> dict[str, Any]:
    """In a process of its own: damaged bytes must not end it either."""
    command = [sys.executable, "-m", "tests.crash.flips", str(seed), str(damages), str(folder), *broken]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_no_random_damage_makes_a_wrong_answer_and_a_repair_makes_all_right(folder: Path) -> None:
    found = flips(folder, DAMAGES)
    assert found["wrong"] == []
    assert sum(found["found"].values()) == found["damages"] >= DAMAGES
    if SOAK_FLIPS:
        told = {name.split(":")[0] for name in found["found"] if name.endswith("told")}
        assert len(told) > 4  # of eleven kinds of files: most damage is to what was not asked for
        counts = {**found["found"], "behind": found["behind"], "in all": found["damages"]}
        soak.write_section("Files that are damaged", ABOUT, counts)


# The seeds of the broken variants were found by search: they show the fault within a few trials.


def test_without_digests_some_answers_are_wrong(folder: Path) -> None:
    """The broken variant: what is read is compared with nothing. Or they end in an error that is not ours."""
    assert flips(folder, 2000, "unchecked", seed=3)["wrong"]


def test_a_repair_that_finds_no_damaged_run_is_caught(folder: Path) -> None:
    """The broken variant of the repair."""
    assert flips(folder, 60, "unrepaired")["wrong"]
