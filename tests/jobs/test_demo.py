"""The demo is the main job on real data: it runs to its end, and every bound that it prints holds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_demo_keeps_every_promise_twice(tmp_path: Path) -> None:
    """A second run is as right as the first; both end with 0 only where all bounds hold."""
    folder = tmp_path / "demo"
    command = [sys.executable, "-m", "jobs.demo", "--warehouse", str(folder)]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("every bound holds") == 2
        assert (folder / "delay-cdf.png").stat().st_size > 10_000
