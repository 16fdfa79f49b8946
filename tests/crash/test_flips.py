"""Damaged files never make a wrong answer, nor a wrong run; whoever reads one is told which. See flips.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import soak

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SOAK_FLIPS = int(os.environ.get("TIDEMARK_SOAK_FLIPS", "0"))  # `make soak` sets it
TRIALS = SOAK_FLIPS or 44  # four of each kind of file
ABOUT = """One file of a warehouse is damaged at random: a bit, a byte or eight of them change, or its end is
cut off. Then a new reader is asked a third of all questions, in all modes; every tenth time a load that
merges comes after the damage. Each answer was the one of the sound warehouse, or an error that names the
damaged file, and no load made a wrong run of it. `right` counts damage to what was not asked for."""


def flips(folder: Path, trials: int, *more: str) -> dict[str, Any]:
    """In a process of its own: damaged bytes must not end it either."""
    command = [sys.executable, "-m", "tests.crash.flips", "7", str(trials), str(folder), *more]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_no_random_damage_makes_a_wrong_answer_or_a_foreign_error(tmp_path: Path) -> None:
    found = flips(tmp_path, TRIALS)
    assert found["wrong"] == []
    assert sum(found["found"].values()) == found["trials"] == TRIALS
    told = {name.split(":")[0] for name in found["found"] if name.endswith("told")}
    assert len(told) > 4  # of eleven kinds of files: most damage is to what was not asked for
    if SOAK_FLIPS:
        soak.write_section("Files that are damaged", ABOUT, {**found["found"], "in all": TRIALS})


def test_without_digests_some_answers_are_wrong(tmp_path: Path) -> None:
    """The broken variant: what is read is compared with nothing."""
    assert flips(tmp_path, 400, "unchecked")["wrong"]
