"""What lies in a warehouse's folder, to compare before and after."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
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
from tidemark.warehouse.integrity.digests import column_digest, columns_by_name
from tidemark.warehouse.integrity.sealed_files import open_sealed
from tidemark.warehouse.projections.spans import Spans
from tidemark.warehouse.runs.marks import (
    CONTENT_FIELD,
    DIGESTS_GROUP,
    FOOTERS_GROUP,
    SPANS_GROUP,
    STATISTICS_COLUMN,
    FileDigests,
    statistics_digest,
)
from tidemark.warehouse.runs.run_tables import attempt_name
from tidemark.warehouse.settings.options import read_options


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
    the one that is named is what changes. Of a file of a run that is changed the marks have its digests.
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
    _digest_again(uri, name, path)
    return data_files.add_action(path, (Path(uri) / name / path).stat().st_size, rows.num_rows)


def digests_of(footer: pq.FileMetaData, blocks: Sequence[pa.Table], row_digest: int = 0) -> FileDigests:
    """The digests of a run's file with these row groups."""
    columns = [columns_by_name(block) for block in blocks]
    digests = {name: [column_digest(block[name]) for block in columns] for name in blocks[0].column_names}
    groups = range(footer.num_row_groups)
    digests[STATISTICS_COLUMN] = [statistics_digest(footer.row_group(group)) for group in groups]
    return FileDigests(row_digest, {name: np.array(found, np.uint64) for name, found in digests.items()})


def _digest_again(uri: str | os.PathLike[str], name: str, path: str) -> None:
    """Puts the digests of a run's file, as it is now, into the marks of the run."""
    store = Store.from_uri(uri)
    (projection,) = (one for one in read_options(store).projections if one.runs_table == name)
    with open_sealed(store.filesystem(), f"{name}/{path}", texts=projection.dictionaries) as file:
        blocks = [file.read_group(at) for at in range(file.metadata.num_row_groups)]
        parts = [part for block in blocks for part in projection.from_stored(columns_by_name(block))]
        found = digests_of(file.metadata, blocks, sum(map(projection.digest, parts)) % 2**64)

    def change(rows: pa.Table) -> pa.Table:
        at = rows.column("file").to_pylist().index(path)
        contents = rows.column(CONTENT_FIELD.name).to_pylist()
        contents[at] = found.to_bytes()
        i = rows.schema.get_field_index(CONTENT_FIELD.name)
        return rows.set_column(i, CONTENT_FIELD, pa.array(contents, CONTENT_FIELD.type))

    marks = f"{path.split('/', maxsplit=1)[0]}/{attempt_name(path)}.parquet"
    rewrite_file(uri, projection.marks_table, marks, change, packed=DIGESTS_GROUP)


def recounted(rows: pa.Table, change: Callable[[NDArray[np.int64]], None]) -> pa.Table:
    """The row group of a run's spans with other counts (spans, ticks): `change` sets them in place."""
    spans = Spans.from_bytes(rows.column(CONTENT_FIELD.name)[0].as_py())
    counts = spans.counts.astype(np.int64)
    change(counts)
    packed = Spans(spans.starts, spans.ticks, counts.astype(spans.counts.dtype)).to_bytes()
    i = rows.schema.get_field_index(CONTENT_FIELD.name)
    return rows.set_column(i, CONTENT_FIELD, pa.array([packed], CONTENT_FIELD.type))


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
