"""Builds the distribution files: a wheel, an sdist, and a zip for `spark-submit --py-files`.

    make dist        (or: python tools/dist.py [FOLDER])

The wheel is built from the unpacked sdist, and the zip from the wheel. So all three have the same modules,
and other files of the source tree cannot get in. The zip has only the packages; the script that spark-submit
runs, such as jobs/load_batch.py, is a separate file.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info")
BUILD = "import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"


def main(argv: list[str] | None = None) -> int:
    """Builds the three files into the folder of the argument (default `dist`) and prints their paths."""
    words = sys.argv[1:] if argv is None else argv
    folder = Path(words[0] if words else ROOT / "dist").resolve()
    for path in build(folder):
        print(path)
    return 0


def build(folder: Path) -> tuple[Path, Path, Path]:
    """Builds into the folder; returns the paths of the sdist, the wheel and the zip."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        built = Path(scratch)
        # setuptools writes beside what it builds, where another build may be at work.
        _build(Path(shutil.copytree(ROOT, built / "source", ignore=LEFT_OUT)), built, "sdist")
        (sdist,) = built.glob("*.tar.gz")
        with tarfile.open(sdist) as archive:
            # Python 3.11 has extraction filters since 3.11.4.
            options: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            archive.extractall(built / "tree", **options)  # noqa: S202  our own archive
        (tree,) = (built / "tree").iterdir()
        _build(tree, built, "wheel")
        (wheel,) = built.glob("*.whl")
        archive_path = _zip_packages(wheel, built / f"{tree.name}.zip")
        sdist, wheel, archive_path = (
            Path(shutil.copy(file, folder)) for file in (sdist, wheel, archive_path)
        )
    return sdist, wheel, archive_path


def _build(tree: Path, folder: Path, kind: str) -> None:
    """Builds a tree with setuptools, in a subprocess: it uses the current folder and prints a lot."""
    # -I: ignores PYTHONPATH, so that this environment's setuptools is used.
    command = [sys.executable, "-I", "-c", BUILD.format(kind=kind), str(folder)]
    result = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)  # noqa: S603  our own
    if result.returncode:
        raise RuntimeError(f"the {kind} could not be built:\n{result.stdout}{result.stderr}")


def _zip_packages(wheel: Path, target: Path) -> Path:
    """Writes the packages of the wheel, without pip's metadata, to a zip; returns its path."""
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in source.namelist():
            if ".dist-info/" not in name:
                archive.writestr(name, source.read(name))
    return target


if __name__ == "__main__":
    sys.exit(main())
