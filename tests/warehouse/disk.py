"""What lies in a warehouse's folder, to compare before and after."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction
from numpy.typing import NDArray

from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import KEY_MARKS, MORE_KEY_MARKS
from tidemark.warehouse.integrity.sealed_files import open_sealed
from tidemark.warehouse.projections.spans import Spans
from tidemark.warehouse.runs.marks import (
    CONTENT_FIELD,
    DIGESTS_GROUP,
    FOOTERS_GROUP,
    SPANS_GROUP,
    UNNAMED_GROUPS,
)


def table_names(uri: str | os.PathLike[str]) -> list[str]:
    """The Delta tables below the folder."""
    root = Path(uri)
    return sorted(str(log.parent.relative_to(root)) for log in root.rglob("_delta_log"))


def tables_of(uri: str | os.PathLike[str]) -> dict[str, tuple[int, dict[str, int]]]:
    """Each table's version and the files that it names, with their rows."""
    found = {}
    for name in table_names(uri):
        table = DeltaTable(Path(uri) / name)
        found[name] = (table.version(), {file.path: file.rows for file in data_files.list_files(table)})
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
    store = Store.from_uri(uri)
    return data_files.read(store, name, tables.open_table(store, name))


def only_file(uri: str | os.PathLike[str], name: str) -> Path:
    """The one file that the table names."""
    (file,) = data_files.list_files(tables.open_table(Store.from_uri(uri), name))
    return Path(uri) / name / file.path


def backdate(folder: Path, seconds: float) -> None:
    """Makes every file below the folder older."""
    for path in folder.rglob("*"):
        if path.is_file():
            stat = path.stat()
            os.utime(path, (stat.st_atime - seconds, stat.st_mtime - seconds))


def replace_rows(uri: str | os.PathLike[str], name: str, rows: Any) -> None:
    """Rewrites a table that the driver writes as one file of these rows."""
    store = Store.from_uri(uri)
    table = tables.open_table(store, name)
    added = data_files.write_file(store, name, rows, f"{data_files.unique_name()}.parquet")
    tables.commit(table, [*map(data_files.remove_action, data_files.list_files(table)), added])


def rewrite_file(
    uri: str | os.PathLike[str],
    name: str,
    path: str,
    change: Callable[[Any], Any],
    packed: str | None = None,
) -> AddAction:
    """Changes the rows of a file in place, as a wrong writer would: it is sealed as it is then.

    Its row groups have as many rows as they had, but for the last. Row groups of packed content stay, and
    the one that is named is what changes. Of a file of a run that is changed the marks have no digests from
    then on.
    """
    store = Store.from_uri(uri)
    with open_sealed(store.filesystem(), f"{name}/{path}") as file:
        groups = file.names or tuple(map(str, range(file.metadata.num_row_groups)))
        parts = {group: file.read_group(at) for at, group in enumerate(groups)}
    kept = {
        group: parts.pop(group) for group in (SPANS_GROUP, DIGESTS_GROUP, FOOTERS_GROUP) if group in parts
    }
    if packed is not None:
        kept[packed] = change(kept[packed])
        return data_files.write_file(store, name, parts | kept, path)
    rows, at = change(pa.concat_tables(parts.values())), 0
    for group, part in parts.items():
        last = group == list(parts)[-1]
        parts[group] = rows.slice(at, None if last else part.num_rows)
        at += part.num_rows
    if file.names:
        return data_files.write_file(store, name, parts | kept, path)
    with pq.ParquetWriter(Path(uri) / name / path, rows.schema) as writer:
        for part in parts.values():
            writer.write_table(part, row_group_size=max(1, part.num_rows))
    forget_digests(uri)
    return data_files.add_action(path, (Path(uri) / name / path).stat().st_size, rows.num_rows)


def forget_digests(uri: str | os.PathLike[str]) -> None:
    """Every marks file becomes what version 0.1 wrote: three row groups, lists of spans, and no digests."""
    disk = Store.from_uri(uri).filesystem()
    marked = [name for name in table_names(uri) if name.startswith(("marks", KEY_MARKS, MORE_KEY_MARKS))]
    for path in (path for name in marked for path in (Path(uri) / name).rglob("*.parquet")):
        with open_sealed(disk, str(path.relative_to(uri)), names=UNNAMED_GROUPS) as file:
            parts = [file.read(name) for name in UNNAMED_GROUPS if name in file.names]
            if SPANS_GROUP in file.names:
                parts[1] = _with_lists(parts[1], file.read(SPANS_GROUP).column(CONTENT_FIELD.name)[0].as_py())
        parts = [
            part.select([one for one in part.column_names if one != CONTENT_FIELD.name]) for part in parts
        ]
        with pq.ParquetWriter(path, parts[0].schema) as writer:
            for part in parts:
                writer.write_table(part, row_group_size=max(1, part.num_rows))


def recounted(rows: pa.Table, change: Callable[[NDArray[np.int64]], None]) -> pa.Table:
    """The row group of a run's spans with other counts (spans, ticks): `change` sets them in place."""
    spans = Spans.from_bytes(rows.column(CONTENT_FIELD.name)[0].as_py())
    counts = spans.counts.astype(np.int64)
    change(counts)
    packed = Spans(spans.starts, spans.ticks, counts.astype(spans.counts.dtype)).to_bytes()
    i = rows.schema.get_field_index(CONTENT_FIELD.name)
    return rows.set_column(i, CONTENT_FIELD, pa.array([packed], CONTENT_FIELD.type))


def _with_lists(marks: pa.Table, content: bytes) -> pa.Table:
    spans = Spans.from_bytes(content)
    of_start = {
        start: [(tick, int(count)) for tick, count in zip(spans.ticks.tolist(), row, strict=True) if count]
        for start, row in zip(spans.starts.tolist(), spans.counts, strict=True)
    }
    for at, name in enumerate(["ticks", "counts"]):
        lists = [[cell[at] for cell in of_start.get(start, [])] for start in marks["position"].to_pylist()]
        i = marks.schema.get_field_index(name)
        marks = marks.set_column(i, marks.schema.field(i), pa.array(lists, marks.schema.field(i).type))
    return marks


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
