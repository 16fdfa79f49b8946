"""Runs the command inside the test or as a process, and keeps what it said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tidemark.jobs.cli import main

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Said:
    """The exit code and both outputs."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def tidemark(capsys: pytest.CaptureFixture[str], *argv: object) -> Said:
    """The command in this process."""
    capsys.readouterr()
    try:
        code = main.main(list(map(str, argv)))
    except SystemExit as stopped:  # argparse's way to end
        code = int(stopped.code or 0)
    return Said(code, *capsys.readouterr())


def environment(**changed: str) -> dict[str, str]:
    """This process's variables without those that Spark left for children."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    return {**kept, "PYTHONPATH": str(ROOT), **changed}


def to_a_reader_that_ends(line: str) -> Said:
    """A line of bash whose last command stops reading; its code is that of whatever failed."""
    bash = ["/bin/bash", "-o", "pipefail", "-c", line]
    done = subprocess.run(bash, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    return Said(done.returncode, done.stdout, done.stderr)


def process(*argv: object, **changed: str) -> Said:
    """The command as a process of its own."""
    line = [sys.executable, "-m", "tidemark.jobs.cli.main", *map(str, argv)]
    done = subprocess.run(
        line, cwd=ROOT, env=environment(**changed), capture_output=True, text=True, timeout=120, check=False
    )
    return Said(done.returncode, done.stdout, done.stderr)
