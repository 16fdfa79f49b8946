"""The kept warehouses, unpacked: history, live batches and a key on the disk, without a Spark session."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpacked(folder: Path, name: str, version: str = "0.1.0") -> Path:
    """Where the kept warehouse of that name lies, once all are unpacked into the folder."""
    with tarfile.open(Path(__file__).parent / f"written-{version}.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    return folder / name
