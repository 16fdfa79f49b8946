"""The log of a table that cannot be opened: its torn newest commit is removed, or the log is begun anew.

If the newest entry of a log is a checkpoint without the commit of its version, the table opens, but delta-rs
commits nothing to it. Then an empty commit is put into the log.

A machine that stops while a commit is written may leave its newest entry cut. Nobody could read that version,
so the table goes back to the version before it. If that cannot be opened either, all entries are deleted: the
caller creates the table again. Its data files stay in the folder; maintenance deletes them after the grace.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from contextlib import suppress

from pyarrow import fs

from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.commits import commit_metadata, first_line
from tidemark.warehouse.delta.log_files import LAST_CHECKPOINT, commit_name
from tidemark.warehouse.delta.retries import delete_file
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_open import open_directly, remedy
from tidemark.warehouse.errors import DamagedWarehouse, NotAWarehouse

_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.")


def unreadable(store: Store, name: str) -> str | None:
    """Why the table cannot be opened, or its files not be listed, without the remedy; None if both work.

    If both worked once, they work until the log changes (idle_tables.py).
    """
    try:
        data_files.list_files(tables.open_in_place(store, name))
    except (NotAWarehouse, DamagedWarehouse) as error:
        return str(error).removesuffix(remedy(name)).rstrip()
    except Exception as error:  # noqa: BLE001  delta-rs reads the log when its files are listed
        return f"{name}: {first_line(error)}"
    return None


def bare_checkpoint(store: Store, name: str) -> int | None:
    """The version of a checkpoint after which nothing can be committed; None if the log has no such end."""
    files = store.files.log_names(name)
    entries = [int(match[1]) for file in files if (match := _ENTRY.fullmatch(file))]
    newest = max((int(match[1]) for file in files if (match := _CHECKPOINT.match(file))), default=-1)
    return newest if newest > max(entries, default=-1) else None


def follow_checkpoint(store: Store, name: str, version: int) -> None:
    """Puts a commit without files after the checkpoint of this version, if there is none yet."""
    info = {"timestamp": round(time.time() * 1000), "operation": "REPAIR", **commit_metadata()}
    entry, objects = json.dumps({"commitInfo": info}).encode(), store.files.open_objects()
    path = f"{name}/_delta_log/{commit_name(version + 1)}"
    if objects is not None:
        with suppress(FileExistsError):
            objects.put_new(path, entry)
    elif store.files.absent([path]):  # of a store that only delta-rs and pyarrow have access to
        with store.filesystem().open_output_stream(path) as file:
            file.write(entry)
    store.files.forget()


def remove_log(store: Store, name: str, *, whole: bool = False) -> bool:
    """Removes as little of the log as lets the table be opened; returns whether any entry is left.

    First goes the hint `_last_checkpoint`, without which the log is listed, then the newest entry, then all.
    whole: the whole log is removed at once.
    """
    left = not whole and _remove(store, name, lambda file: file == LAST_CHECKPOINT)
    if not left and not whole:
        numbers = [int(match[1]) for file in _files(store, name) if (match := _ENTRY.fullmatch(file))]
        if len(numbers) > 1 and _opens(store, name, max(numbers) - 1):
            newest = f"{max(numbers):020d}"
            left = _remove(store, name, lambda file: file.startswith(newest))
    if not left:
        _remove(store, name, lambda _: True)
    store.files.forget()
    return left


def _remove(store: Store, name: str, chosen: Callable[[str], bool]) -> bool:
    """Deletes the chosen files of the log; whether the table can be opened then."""
    for file in filter(chosen, _files(store, name)):
        delete_file(store.filesystem(), f"{name}/_delta_log/{file}")
    return unreadable(store, name) is None


def _files(store: Store, name: str) -> list[str]:
    """The names of the files of the log, in order; the hint after the entries."""
    folder = fs.FileSelector(f"{name}/_delta_log", allow_not_found=True)
    found = store.filesystem().get_file_info(folder)
    return sorted(info.base_name for info in found if info.is_file)


def _opens(store: Store, name: str, version: int) -> bool:
    try:
        data_files.list_files(open_directly(store, name, version))
    except Exception:  # noqa: BLE001  of any type: then it does not
        return False
    return True
