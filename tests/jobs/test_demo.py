"""The demo is the main job on real data, by spark-submit: it runs to its end, and every bound holds."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.jobs.conftest import FLIGHTS
from tidemark import query

pytestmark = pytest.mark.spark


def test_the_demo_keeps_every_promise(tmp_path: Path) -> None:
    """It starts from what an earlier run left, and ends with 0 only where all bounds hold."""
    folder = tmp_path / "demo"
    (folder / "warehouse" / "events").mkdir(parents=True)
    command = [sys.executable, "-m", "tidemark.jobs.demo", "--warehouse", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("every bound holds") == 2
    assert (folder / "delay-cdf.png").stat().st_size > 10_000
    batches = re.findall(r"^(?:backfill/|week-of-).*: loaded", done.stdout, re.MULTILINE)
    wh = query.open(folder / "warehouse")
    assert len(batches) == wh.info()["steps"] > 1
    rows = pq.read_table(FLIGHTS)
    for measure in ("delay", "distance"):
        ordered = sorted(rows[measure].drop_null().to_pylist())
        for phi in (0, 0.25, 0.5, 0.75, 1):
            answer = wh.quantile(phi, measure, mode="exact")
            assert (answer.N, answer.value) == (len(ordered), ordered[max(1, math.ceil(phi * answer.N)) - 1])
