"""The rows of a key in a window as a relation of DuckDB, to be scanned once.

    name      the key: text as bytes, numbers as they are stored
    tick
    code      the number of the window or slot of the tick, if ticks are divided into some
    history   the rows in history with this key and tick, or 0
    live      the live rows, or 0

DuckDB reads the files of runs by itself if they are local and have digests: checked_files.py compares them
before. All other files, and files with text that is not UTF-8, are read through BlockReader, and live rows
come from `events`; a row of the relation is then one row that was read. DuckDB spills to disk what does not
fit into memory. Cost: a scan of all blocks of the runs that have rows in the window.

If the window has far fewer rows than these blocks, the rows come from `events` (`EventRows`), and a row of
the relation is one of these. Removed rows that runs still have are in the relation, too, with negative
counts: so sums by key count the remaining rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.query.keys.key_blocks import COLUMNS, KeyHistory
from tidemark.query.keys.key_windows import PartialTick
from tidemark.query.reading import spending
from tidemark.query.reading.block_reader import BlockReader, RowGroups, path_of
from tidemark.query.reading.checked_files import checked_file, duckdb_reads, is_utf8
from tidemark.query.reading.connections import ScanConnection, give_back, run_query, take_connection
from tidemark.query.reading.duckdb_errors import Raised, error_of_files, report_duckdb_errors
from tidemark.query.reading.sql_text import parquet_rows
from tidemark.warehouse.columns.arrow_buffers import arrow_array
from tidemark.warehouse.columns.codes import Ints
from tidemark.warehouse.columns.keys import Key, Names, names_of, stored_keys, take_names
from tidemark.warehouse.columns.ticks import ALL_TIME
from tidemark.warehouse.columns.value_encoding import single_array
from tidemark.warehouse.errors import TidemarkError
from tidemark.warehouse.os_errors import report_unreadable_file
from tidemark.warehouse.projections.key_rows import KeyRows
from tidemark.warehouse.runs.marks import RunFile
from tidemark.warehouse.snapshots.views import KeysView

T = TypeVar("T")

GROUPS_PER_READ = 32
_OPERATION = "a count of all keys"


@dataclass(frozen=True, slots=True)
class EventRows:
    """The rows of `events` with a key in a window of whole ticks, also live ones.

    sql: a relation of the columns name, tick, history and live. has_live: whether it may have live rows.
    files: the files that DuckDB reads for it. folders: the folders of the warehouses that have the files.
    count: counts the rows without DuckDB, where the key has few numbers: the numbers with rows, ascending,
        and the rows of each in history and on the live side; None if the key has other numbers, too.
    """

    sql: str
    has_live: bool
    files: Sequence[str]
    folders: Sequence[str]
    count: Callable[[], tuple[Ints, Ints, Ints] | None] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class WindowRows:
    """The rows of a window that have a key, to be scanned once.

    history: all ticks that overlap the window.
    partial: the ticks that the window covers only in part.
    live: the live rows, in pieces.
    events: all of these rows, where they are to be read from `events`.
    """

    history: KeyHistory
    partial: tuple[PartialTick, ...]
    live: Iterator[KeyRows]
    events: EventRows | None = None

    @property
    def key(self) -> Key:
        """The key."""
        return self.history.view.key

    @property
    def folders(self) -> set[str]:
        """The folders on this machine of the warehouses that have the rows."""
        return self.history.folders.union(() if self.events is None else self.events.folders)

    @property
    def stored_rows(self) -> int:
        """The rows of history that a scan reads: of the runs, or of `events`."""
        if self.events is not None:
            return self.history.rows
        return sum(share.marks.rows for share in self.history.shares)

    def sums(self, condition: str = "") -> tuple[str, str]:
        """SQL that sums up history, of rows with the condition (FILTER), and live rows."""
        if self.events is not None:  # each row is one; to count all costs least
            live = "count(*) FILTER (live > 0)" if self.events.has_live else "0::BIGINT"
            return f"count(*) - {live}", live
        return f"coalesce(sum(history){condition}, 0)::BIGINT", "sum(live)::BIGINT"


class KeyDatabase:
    """A database in memory for one question, whose tables are relations of keys."""

    def __init__(self, taken: ScanConnection, raised: Raised) -> None:
        self.connection, self._raised = taken.connection, raised
        self._table_of = taken.table_of
        self._registered: list[str] = []
        self._files: list[str] = []

    def relation(
        self, rows: WindowRows, codes: Callable[[Ints], Ints] | None = None, *, by_tick: bool = False
    ) -> str:
        """SQL of the relation, to be used once.

        by_tick: whether each key and tick is to have rows; else sums over the ticks of a key may be 0, too.
        codes: the code of each tick; rows whose code is negative are left out. None: there is no code.
        """
        if rows.events is not None:
            self._files += rows.events.files
            _, joined = self._coded(rows, codes)
            return f"(FROM {rows.events.sql}{joined})"
        files, others = _read_by_duckdb(rows.history)
        schema = _schema(rows.key, with_codes=codes is not None)
        batches = self._raised.kept(_batches(rows, others, schema, codes))
        parts = [f"SELECT * FROM {self._register('rows', schema, batches)}"]
        if files:
            code, joined = self._coded(rows, codes)
            name = "encode(key)" if rows.key.stored_type == pa.string() else "key"
            window = rows.history.window
            inside = "" if window == ALL_TIME else f" WHERE tick >= {window.start} AND tick < {window.stop}"
            self._files += files
            parts.append(
                f"SELECT {name} AS name, tick, {code}count AS history, 0::BIGINT AS live "
                f"FROM {parquet_rows(files)}{joined}{inside}"
            )
        relation = f"({' UNION ALL '.join(parts)})"
        if not by_tick or rows.history.kept is None:
            return relation
        return _without_kept(relation, with_codes=codes is not None)

    def _coded(self, rows: WindowRows, codes: Callable[[Ints], Ints] | None) -> tuple[str, str]:
        """SQL of the column of codes, and of the join that brings it; both empty without codes."""
        if codes is None:
            return "", ""
        view, window = rows.history.view, rows.history.window
        known = [
            np.array(view.live_ticks, np.int64),
            *(share.marks.totals.ticks for share in rows.history.shares),
        ]
        ticks = np.unique(np.concatenate(known))
        ticks = ticks[window.holds(ticks)]
        table = pa.RecordBatch.from_arrays([arrow_array(ticks), arrow_array(codes(ticks))], ["tick", "code"])
        coded = self._register("ticks", table.schema, iter([table]))
        return "code, ", f" JOIN (FROM {coded} WHERE code >= 0) USING (tick)"

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        return self._ask(lambda: self.connection.execute(statement).fetchall())

    def keep(self, name: str, rows: str) -> None:
        """Keeps rows, SQL, in a table of this name until the database is closed."""
        self.rows(self._table_of(name, rows))

    def columns(self, statement: str) -> pa.Table:
        """The rows of a statement, each column in one piece."""
        # With parameters DuckDB plans the statement once, without them twice.
        return self._ask(lambda: self.connection.sql(statement, params=[]).to_arrow_table()).combine_chunks()

    def _ask(self, ask: Callable[[], T]) -> T:
        """The result of `ask`; a question or a way that may be stopped waits for it in another thread."""
        return run_query(self.connection, ask) if spending.may_be_stopped() else ask()

    def explain(self, error: Exception) -> TidemarkError | None:
        """The error for a file that cannot be read."""
        return error_of_files(error, self._files)

    def close(self) -> None:
        """Closes the sources that the relations read."""
        for name in self._registered:
            self.connection.unregister(name)

    def _register(self, kind: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> str:
        name = f"{kind} {len(self._registered)}"
        self.connection.register(name, pa.RecordBatchReader.from_batches(schema, batches))
        self._registered.append(name)
        return f'"{name}"'


@contextmanager
def database(*inputs: WindowRows) -> Iterator[KeyDatabase]:
    """A database for relations of these rows; its errors become the package's."""
    spending.scans_keys()
    raised = Raised()
    with report_duckdb_errors(_OPERATION, raised):
        taken = take_connection(*(folder for rows in inputs for folder in rows.folders))
    opened = KeyDatabase(taken, raised)
    with report_duckdb_errors(_OPERATION, raised, opened.explain):
        try:
            yield opened
        finally:
            opened.close()
            give_back(taken)


def _without_kept(relation: str, *, with_codes: bool) -> str:
    """SQL of the sums of the relation, in which counts of removed rows are negative, without zeros."""
    code = "code, " if with_codes else ""
    return (
        f"(SELECT name, tick, {code}sum(history)::BIGINT AS history, sum(live)::BIGINT AS live "
        f"FROM {relation} GROUP BY name, tick, {code}live > 0 HAVING sum(history) <> 0 OR sum(live) <> 0)"
    )


def stored_names(key: Key, found: pa.Table) -> Names:
    """The column `name` of rows that were found."""
    return names_of(key, single_array(found.column("name")))


def _schema(key: Key, *, with_codes: bool) -> pa.Schema:
    name = pa.large_binary() if key.is_text else key.stored_type
    longs = ["tick", *(["code"] if with_codes else []), "history", "live"]
    return pa.schema([("name", name), *((column, pa.int64()) for column in longs)])


def _read_by_duckdb(history: KeyHistory) -> tuple[list[str], list[RunFile]]:
    """The paths of the files of the runs that DuckDB reads, and the others."""
    paths, others = list[str](), list[RunFile]()
    for share in history.shares:
        for file in share.marks.files:
            path = _checked_path(history.blocks, history.view, file)
            if path is None:
                others.append(file)
            else:
                paths.append(path)
                blocks = len(history.blocks.footer(history.view.root, file).edges) - 1
                spending.read(path, blocks=blocks, rows=file.rows, size=file.size)
    return paths, others


def _checked_path(blocks: BlockReader, view: KeysView, file: RunFile) -> str | None:
    """The path of a file that is as it was written and that DuckDB can read; None for any other."""
    folder = None if file.store is None else file.store.files.folder
    if folder is None or file.digests is None:
        return None
    relative = path_of(view.root, file)
    path = f"{folder}/{relative}"

    with report_unreadable_file(f"{relative} of the warehouse {folder}"):
        known = checked_file(path)
        if known.missing(["rows"]):
            if not pq.read_metadata(path).equals(blocks.footer(view.root, file).metadata):
                raise ValueError("its footer is not what was read before")
            is_text = all(map(_is_unicode, _blocks(blocks, view, file)))
            known.keep({"rows": is_text and duckdb_reads(folder, path, COLUMNS)})
        return path if known.facts["rows"] else None


def _is_unicode(block: Any) -> bool:
    """Whether DuckDB reads the text of a block, too."""
    keys = block["key"]
    is_other = isinstance(keys, np.ndarray) or keys.type.value_type != pa.string()
    return is_other or all(is_utf8(chunk.dictionary) for chunk in keys.chunks)


def _blocks(blocks: BlockReader, view: KeysView, file: RunFile) -> Iterator[Any]:
    groups = range(len(blocks.footer(view.root, file).edges) - 1)
    for first in range(0, len(groups), GROUPS_PER_READ):
        batch = groups[first : first + GROUPS_PER_READ]
        wanted = RowGroups(view.root, file, batch, COLUMNS, view.projection.dictionaries)
        yield from blocks.read(wanted)


def _batches(
    rows: WindowRows,
    others: Sequence[RunFile],
    schema: pa.Schema,
    codes: Callable[[Ints], Ints] | None,
) -> Iterator[pa.RecordBatch]:
    """The rows of the window that DuckDB does not read by itself."""
    history = rows.history
    for file in others:
        for block in _blocks(history.blocks, history.view, file):
            for part in history.view.projection.from_stored(block):
                yield _batch(rows.key, part.within(history.window), schema, codes, is_live=False)
    if history.kept is not None:
        gone = replace(history.kept, counts=-history.kept.counts)
        yield _batch(rows.key, gone, schema, codes, is_live=False)
    for part in rows.live:
        yield _batch(rows.key, part, schema, codes, is_live=True)


def _batch(
    key: Key, rows: KeyRows, schema: pa.Schema, codes: Callable[[Ints], Ints] | None, *, is_live: bool
) -> pa.RecordBatch:
    coded = [] if codes is None else [codes(rows.ticks)]
    if coded:
        chosen = coded[0] >= 0
        rows, coded = rows.where(chosen), [coded[0][chosen]]
    names, zeros = take_names(rows.names, rows.codes), np.zeros(len(rows), np.int64)
    counts = (zeros, rows.counts) if is_live else (rows.counts, zeros)
    column = stored_keys(key, names) if isinstance(names, np.ndarray) else names
    return pa.RecordBatch.from_arrays(
        [column, *map(arrow_array, [rows.ticks, *coded, *counts])], schema=schema
    )
