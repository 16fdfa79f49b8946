"""What `make dist` builds, and a clean environment with the wheel and the present one's other packages."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from jobs import dist


@dataclass(frozen=True)
class Installed:
    """The files that were built, and the environment's folder."""

    sdist: Path
    wheel: Path
    zipped: Path
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"


def install(folder: Path) -> Installed:
    """Builds all three files and installs the wheel.

    A .pth file adds the other packages. Those of the present environment that are installed by a .pth file
    of their own, as tidemark itself is, are not seen: such a file counts only in its own environment.
    """
    sdist, wheel, zipped = dist.build(folder / "dist")
    venv = folder / "venv"
    _run(sys.executable, "-m", "venv", "--without-pip", venv)
    (site,) = venv.glob("lib/python3*/site-packages")
    pip = [sys.executable, "-m", "pip", "--python", venv / "bin" / "python", "--disable-pip-version-check"]
    _run(*pip, "install", "-q", "--no-deps", "--no-index", wheel)
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Installed(sdist, wheel, zipped, venv)


def _run(*line: object) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(list(map(str, line)), env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
