"""What a machine may refuse: a disk without room, a folder without permission."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EFBIG, ENOSPC
from pathlib import Path


@contextmanager
def no_bytes() -> Iterator[None]:
    """No file takes a byte of this process: the nearest to a full disk that every machine allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def no_rights(folder: Path) -> Iterator[None]:
    """The folder may be read and not be written: as somebody else where this is root, who may do all."""
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for path in folders:
        path.chmod(0o555)
    root = os.geteuid() == 0
    if root:
        os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        if root:
            os.setresuid(0, 0, 0)
        for path in folders:
            path.chmod(0o755)


@contextmanager
def full_disk(folder: Path) -> Iterator[Path]:
    """A disk of its own without room, where this machine lets us mount one; else a folder and `no_bytes`."""
    folder.mkdir()
    mount = ["/bin/mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, check=False, capture_output=True).returncode == 0
    try:
        yield folder
    finally:
        if mounted:
            subprocess.run(["/bin/umount", "--lazy", str(folder)], check=True)


@contextmanager
def filled(folder: Path, leaving: int = 0) -> Iterator[int]:
    """Fills the disk of the folder where it is one of its own; the number of the error that it ends in.

    leaving: bytes that stay free, in whole pages; of a disk that is not one of its own, none do.
    """
    if not folder.is_mount():
        with no_bytes():
            yield EFBIG
        return
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            for size in (2**16, 1):
                while file.write(b"x" * size):
                    pass
        except OSError as error:
            if error.errno != ENOSPC:
                raise
        file.truncate(max(0, file.tell() - leaving))
    try:
        yield ENOSPC
    finally:
        filler.unlink()
