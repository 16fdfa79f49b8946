"""The demo is the main job on real data: it runs to its end, and every bound that it prints holds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
