"""Builds what others install: a wheel, an sdist, and a zip for `spark-submit --py-files`.

    make dist        (or: python tools/dist.py [FOLDER])

The wheel is built from the unpacked sdist, and the zip from the wheel: what one of them lacks, they all
lack, and nothing that lies about in the tree gets in. The zip has the packages alone. The script that
spark-submit runs, such as jobs/load_batch.py, stays outside.
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
BUILD = "import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"


def main(argv: list[str] | None = None) -> int:
    """Builds the three files into the folder, `dist` where none is given, and prints their names."""
    given = sys.argv[1:] if argv is None else argv
    folder = Path(given[0] if given else ROOT / "dist").resolve()
    for path in build(folder):
        print(path)
    return 0


def build(folder: Path) -> tuple[Path, Path, Path]:
    """The sdist, the wheel and the zip, in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch)
        _build(ROOT, made, "sdist")
        (sdist,) = made.glob("*.tar.gz")
        with tarfile.open(sdist) as archive:
            # Python 3.11 has filters from its fourth release on.
            safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            archive.extractall(made / "tree", **safely)  # noqa: S202  we have just made it
        (tree,) = (made / "tree").iterdir()
        _build(tree, made, "wheel")
        (wheel,) = made.glob("*.whl")
        zipped = _zipped(wheel, made / f"{tree.name}.zip")
        sdist, wheel, zipped = (Path(shutil.copy(one, folder)) for one in (sdist, wheel, zipped))
    return sdist, wheel, zipped


def _build(tree: Path, folder: Path, kind: str) -> None:
    """Lets setuptools build from a tree; it works where it is started, and tells all that it does."""
    # -I: this environment's setuptools, whatever PYTHONPATH says.
    command = [sys.executable, "-I", "-c", BUILD.format(kind=kind), str(folder)]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)  # noqa: S603  our own
    if done.returncode:
        raise RuntimeError(f"the {kind} could not be built:\n{done.stdout}{done.stderr}")


def _zipped(wheel: Path, target: Path) -> Path:
    """The wheel's packages without what pip needs."""
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in source.namelist():
            if ".dist-info/" not in name:
                archive.writestr(name, source.read(name))
    return target


if __name__ == "__main__":
    sys.exit(main())
