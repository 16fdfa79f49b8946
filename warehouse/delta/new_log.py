"""The log of a table that cannot be opened: its torn newest commit is removed, or the log is begun anew.

A machine that stops while a commit is written may leave its newest entry cut. Nobody could read that version,
so the table goes back to the one before it. Where that cannot be opened either, all entries are deleted: the
caller creates the table again. Its data files stay in the folder; maintenance deletes them after the grace.
"""

from __future__ import annotations

import re

from pyarrow import fs

from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.commits import first_line
from tidemark.warehouse.delta.deletes import delete_file
from tidemark.warehouse.delta.opening import open_directly
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import DamagedWarehouse, NotAWarehouse

_ENTRY = re.compile(r"(\d{20})\.json")


def unreadable(store: Store, name: str) -> str | None:
    """Why the table cannot be opened or its files not be listed; None if they can."""
    try:
        tables.list_files(open_directly(store, name))
    except (NotAWarehouse, DamagedWarehouse) as error:
        return str(error)
    except Exception as error:  # noqa: BLE001  delta-rs reads the log when its files are listed
        return f"{name}: {first_line(error)}"
    return None


def remove_log(store: Store, name: str) -> bool:
    """Removes the newest entry if the table can be opened then, and otherwise all; whether any is left."""
    filesystem, folder = store.filesystem(), f"{name}/_delta_log"
    found = filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    paths = sorted(info.path for info in found if info.is_file)
    numbers = [int(match[1]) for path in paths if (match := _ENTRY.fullmatch(path.rsplit("/", 1)[-1]))]
    if len(numbers) > 1 and _opens(store, name, max(numbers) - 1):
        newest = f"{max(numbers):020d}"
        for path in paths:
            if path.rsplit("/", 1)[-1].startswith(newest):
                delete_file(filesystem, path)
        if unreadable(store, name) is None:
            return True
    for path in paths:
        if path.rsplit("/", 1)[-1] != "_last_checkpoint":
            delete_file(filesystem, path)
    for path in paths:  # the last: without the others it says nothing
        if path.endswith("/_last_checkpoint"):
            delete_file(filesystem, path)
    if not store.is_local:
        store.files.forget()
    return False


def _opens(store: Store, name: str, version: int) -> bool:
    try:
        tables.list_files(open_directly(store, name, version))
    except Exception:  # noqa: BLE001  of any type: then it does not
        return False
    return True
