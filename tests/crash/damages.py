"""Ways to damage a warehouse, by chance: one file's bytes, one file, or the log or folder of one table.

What is damaged lies in a copy whose files are hard links: each is unlinked before it is written anew.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from deltalake import DeltaTable

from tests.warehouse.disk import table_names

KEPT = ("events", "rejected")  # whose logs and folders only a copy brings back
_BYTES = ("bit", "bit", "byte", "bytes", "cut", "removed")
_LOGS = ("put back", "restored", "torn", "line lost", "folder")


def damage_file(path: Path, chance: random.Random) -> str:
    """Changes or removes the file in one of some ways, two times of three before its footer; which."""
    data = bytearray(path.read_bytes())
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    at = chance.randrange(len(data) if chance.randrange(3) == 0 else footer)
    way = chance.choice(_BYTES)
    if way == "bit":
        data[at] ^= 1 << chance.randrange(8)
    elif way == "byte":
        data[at] = (data[at] + chance.randrange(1, 256)) % 256
    elif way == "bytes":
        data[at : at + 8] = chance.randbytes(len(data[at : at + 8]))
    else:
        del data[at:]
    path.unlink()  # the copy's alone: others have the same inode
    if way != "removed":
        path.write_bytes(data)
    return way


def damage_table(uri: Path, chance: random.Random) -> tuple[str, str]:
    """Puts a table back by some versions, cuts its newest log entry, or removes its folder; table and way."""
    name = chance.choice([one for one in table_names(uri) if one not in KEPT])
    way = chance.choice(_LOGS)
    if way == "folder":
        shutil.rmtree(uri / name)
    elif way == "restored":
        table = DeltaTable(uri / name)
        if table.version() > 1:
            table.restore(max(0, table.version() - chance.randrange(1, 4)))
    else:
        _damage_log(uri / name / "_delta_log", way, chance)
    return name, way


def _damage_log(log: Path, way: str, chance: random.Random) -> None:
    entries = sorted(log.glob("*.json"))
    newest = entries[-min(len(entries), chance.randrange(1, 3)) :] if way == "put back" else entries[-1:]
    if len(entries) < 3:
        return
    text = newest[0].read_text()
    for path in [*newest, log / "_last_checkpoint"]:
        for one in log.glob(f"{path.stem}*"):
            one.unlink()
    if way == "torn":
        newest[0].write_text(text[: chance.randrange(len(text))])
    elif way == "line lost":
        newest[0].write_text("".join(text.splitlines(keepends=True)[:-1]))
