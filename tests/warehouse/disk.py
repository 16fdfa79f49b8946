"""What lies in a warehouse's folder, to compare before and after."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from warehouse import tables
from warehouse.storage import Store


def table_names(uri: str | os.PathLike[str]) -> list[str]:
    """The Delta tables below the folder."""
    root = Path(uri)
    return sorted(str(log.parent.relative_to(root)) for log in root.rglob("_delta_log"))


def tables_of(uri: str | os.PathLike[str]) -> dict[str, tuple[int, dict[str, int]]]:
    """Each table's version and the files that it names, with their rows."""
    found = {}
    for name in table_names(uri):
        table = DeltaTable(Path(uri) / name)
        found[name] = (table.version(), {file.path: file.rows for file in tables.files(table)})
    return found


def files_of(uri: str | os.PathLike[str]) -> dict[str, tuple[int, int]]:
    """Every file of the folder, hidden ones too: its size and its time of change."""
    root = Path(uri)
    return {
        str(path.relative_to(root)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def rows_of(uri: str | os.PathLike[str], name: str) -> pa.Table:
    """The rows of a table that the driver writes."""
    store = Store.of(uri)
    return tables.read(store, name, tables.open_table(store, name))


def only_file(uri: str | os.PathLike[str], name: str) -> Path:
    """The one file that the table names."""
    (file,) = tables.files(tables.open_table(Store.of(uri), name))
    return Path(uri) / name / file.path


def backdate(folder: Path, seconds: float) -> None:
    """Makes every file below the folder older."""
    for path in folder.rglob("*"):
        if path.is_file():
            stat = path.stat()
            os.utime(path, (stat.st_atime - seconds, stat.st_mtime - seconds))


def replace_rows(uri: str | os.PathLike[str], name: str, rows: Any) -> None:
    """Rewrites a table that the driver writes as one file of these rows."""
    store = Store.of(uri)
    table = tables.open_table(store, name)
    added = tables.write_file(store, name, rows, f"{tables.new_name()}.parquet")
    tables.commit(table, [*map(tables.remove, tables.files(table)), added])


def edit_properties(uri: str | os.PathLike[str], changes: dict[str, str | None]) -> None:
    """Changes the properties of events in its first commit."""
    log = Path(uri) / "events" / "_delta_log" / "00000000000000000000.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        found = action.get("metaData", {}).get("configuration", {})
        for name, value in changes.items():
            found.pop(name, None)
            if found and value is not None:
                found[name] = value
    log.write_text("\n".join(json.dumps(action) for action in actions))
    for checksum in log.parent.glob("*.crc"):
        checksum.unlink()
