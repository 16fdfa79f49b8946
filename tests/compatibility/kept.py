"""The kept warehouses, unpacked: history, live batches and a key on the disk, without a Spark session."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def unpack(archive: Path, folder: Path) -> Path:
    """The folder, with what the archive holds."""
    # Python 3.11 has filters from its fourth release on.
    safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(archive) as packed:
        packed.extractall(folder, **safely)  # noqa: S202  we have made it
    return folder


def unpacked(folder: Path, name: str, version: str = "0.2.0") -> Path:
    """Where the kept warehouse of that name lies, once all are unpacked into the folder."""
    return unpack(FOLDER / f"written-{version}.tar.xz", folder) / name
