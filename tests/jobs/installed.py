"""What `make dist` builds, and a clean environment with the wheel and the present one's other packages."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import Requirement

from tools import dist


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
    python = bare(venv)
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    _run(*pip, "install", "-q", "--no-deps", "--no-index", wheel)
    return Installed(sdist, wheel, zipped, venv)


def bare(folder: Path) -> Path:
    """The Python of an environment that has the other packages, and not tidemark."""
    _run(sys.executable, "-m", "venv", "--without-pip", folder)
    (site,) = folder.glob("lib/python3*/site-packages")
    others = [path for path in sys.path if Path(path).name == "site-packages"]
    (site / "others.pth").write_text("".join(f"{path}\n" for path in others))
    return folder / "bin" / "python"


def metadata(wheel: Path) -> Message:
    """What the wheel says of itself."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return HeaderParser().parsestr(archive.read(name).decode())


def required(wheel: Path) -> list[Requirement]:
    """What pip installs with the wheel, where no extra is asked for."""
    found = map(Requirement, metadata(wheel).get_all("Requires-Dist", []))
    return [one for one in found if one.marker is None]


def _run(*line: object) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(list(map(str, line)), env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
