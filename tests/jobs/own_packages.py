"""The packages of the present environment for another one: pip resolves with what they say of themselves.

A wheel of each package has its metadata and no files. pip finds them in a folder, resolves and installs as it
does with an index; then the files of what it chose are linked from here. That takes seconds, where an index,
half a gigabyte of Spark to unpack and the hashes of all of it take minutes.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import sys
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from pathlib import Path

WHEEL = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def write_wheels(folder: Path) -> None:
    """A wheel of each package that is installed here but tidemark, with metadata alone."""
    folder.mkdir()
    for one in importlib.metadata.distributions():
        if one.name == "tidemark":
            continue
        name = f"{one.name.replace('-', '_')}-{one.version}"
        files = {"METADATA": one.read_text("METADATA"), "WHEEL": WHEEL}
        if (entries := one.read_text("entry_points.txt")) is not None:
            files["entry_points.txt"] = entries
        with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as wheel:
            for file, text in files.items():
                wheel.writestr(f"{name}.dist-info/{file}", text or "")
            lines = [f"{name}.dist-info/{file},," for file in (*files, "RECORD")]
            wheel.writestr(f"{name}.dist-info/RECORD", "".join(f"{line}\n" for line in lines))


def link_files(names: Iterable[str], environment: Path) -> None:
    """Puts the files of these packages into the environment, as they were installed.

    Modules and jars are links: who changes one there changes it here. Scripts are copied, because those of
    Spark are written anew by what prepares it, and they name their environment. Of one that is no longer as
    it was installed, the copy is of its equal among the modules, if it has one.
    """
    (site,) = environment.glob("lib/python3*/site-packages")
    for name in names:
        files = importlib.metadata.distribution(name).files or []
        equal = {one.hash.value: one for one in files if one.hash and one.parts[0] != ".."}
        for one in files:
            here = Path(str(one.locate()))
            if one.parts[0].endswith(".dist-info") or not here.exists():
                continue
            if one.parts[0] != "..":
                link(here, site / one)
            elif not (there := environment.joinpath(*(part for part in one.parts if part != ".."))).exists():
                if one.hash is not None and digest(here) != one.hash.value:
                    here = Path(str(equal.get(one.hash.value, one).locate()))
                there.parent.mkdir(parents=True, exist_ok=True)
                there.write_bytes(here.read_bytes().replace(sys.prefix.encode(), str(environment).encode()))
                there.chmod(here.stat().st_mode)


def digest(path: Path) -> str:
    """As RECORD has it."""
    found = hashlib.sha256(path.read_bytes()).digest()
    return urlsafe_b64encode(found).rstrip(b"=").decode()


def link(here: Path, there: Path) -> None:
    """A hard link, or a copy on another file system."""
    there.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(here, there)
    except OSError:
        shutil.copy2(here, there)
