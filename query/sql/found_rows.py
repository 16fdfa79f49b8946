"""SQL of the rows of a view: all of them, or those for which a WHERE may be true, as indexes found them.

If the index has all values of the found rows, these rows stay in memory (rows_in_memory.py); for a relation
that DuckDB runs by itself they are written to a small file. Of other files DuckDB reads the found rows, or
all rows. Files whose rows are all visible are read as they are; of the others, rows of invisible batches are
left out.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from weakref import ref

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.query.reading.sql_text import literal, parquet_rows
from tidemark.query.scans.index_places import Found, find
from tidemark.query.scans.picked_rows import FILE_ROW, RowConditions
from tidemark.query.scans.sought import Sought
from tidemark.query.scans.stored_sql import batches_sql
from tidemark.query.sql.registered import Registered
from tidemark.warehouse.columns.schema import arrow_fields
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.errors import InputError, shortened, without_secrets
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.events.visible_files import VisibleFile
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.os_errors import report_unreadable_file
from tidemark.warehouse.settings.allowed_columns import SYSTEM_COLUMNS
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.snapshots.sites import Site
from tidemark.warehouse.snapshots.system_tables import PARTS, Contents

BY_NAME = "union_by_name = true"
_COPY_BYTES = 2**22  # read from a store at once
_KNOWN_FILES = 2**10
_QUERY_BYTES = 2**20  # of a query that is kept, beside its values: an upper bound
_KEPT_FILES, _KEPT_BYTES = 32, 2**28  # of values: these newest files stay, older ones up to so many bytes


class ValueFiles:
    """Files of rows that indexes found, in a folder, for statements that run now; old ones are deleted.

    DuckDB asks for the path anew whenever it runs a relation or a prepared statement. So a file is needed
    from this moment to the end of the run, and as long as there are queries of these rows.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock, self._written = folder, Lock(), 0
        self._kept: dict[Path, tuple[ref[pa.Table], int]] = {}  # its rows and bytes, the newest use last

    def path_of(self, values: pa.Table) -> str:
        """The path of a file of these rows: the one that there is, or a new one."""
        with self._lock:
            for path, (known, _) in self._kept.items():
                if known() is values and path.exists():
                    self._kept[path] = self._kept.pop(path)
                    return str(path)
            self._written += 1
            path = self._folder / f"found-{self._written}.parquet"
        pq.write_table(values, path, compression="none", use_dictionary=False, write_statistics=False)
        with self._lock:
            self._kept[path] = ref(values), path.stat().st_size
            size = sum(size for _, size in self._kept.values())
            for oldest in [*self._kept][:-_KEPT_FILES]:
                known, its_size = self._kept[oldest]
                if known() is None or size > _KEPT_BYTES:
                    del self._kept[oldest]
                    oldest.unlink(missing_ok=True)
                    size -= its_size
        return str(path)


@dataclass(frozen=True, slots=True, eq=False)
class FoundSql:
    """A query of rows.

    values: the rows whose values an index has; None for none. sql_of: the query, by SQL of these rows.
    """

    values: pa.Table | None
    sql_of: Callable[[str], str]

    @property
    def nbytes(self) -> int:
        """How much memory this takes, about."""
        return _QUERY_BYTES + (0 if self.values is None else int(self.values.nbytes))


class SiteFiles:
    """The files of `events` of a warehouse, as DuckDB reads them.

    site: the warehouse. folder: a folder for copies of its files, which exists.
    empty: a file without rows, with all columns of the views. names: those of these columns.
    values: where rows that an index has are written. registered: tells whether the warehouse is still there.
    """

    def __init__(self, site: Site, folder: Path) -> None:
        self.store, self._folder, self._lock = site.store, folder, Lock()
        self.registered = Registered(site.store, site.identity)
        # The first file of each list: it gives the view its columns even if there are no rows, or only files
        # from before a column came.
        self.empty = f"{folder}/empty.parquet"
        self.names = names = site.options.names
        self.columns = _stored_columns(site.options)
        self.values = ValueFiles(folder)
        self._leads: LRUCache[bool] = LRUCache(_KNOWN_FILES)
        schema = pa.schema(tables.open_table(self.store, EVENTS).schema())
        if known := names.stored_of(dict(site.options.columns)):  # at an earlier moment without later ones
            gone = {name: kind for name, kind in self.columns.items() if name not in schema.names}
            there = {one.name: one for one in [*schema, *arrow_fields(gone)]}
            system = [name for name in there if name in SYSTEM_COLUMNS]
            schema = pa.schema([there[name] for name in (*system, *known)])
        pq.write_table(data_files.table_without_rows(schema), self.empty)

    def check_columns(self, options: Options) -> None:
        """InputError if columns of the view are stored with other types, or other tokens, by now."""
        now = _stored_columns(options)
        changed = [self.names.name_of(one) for one, kind in self.columns.items() if now.get(one) != kind]
        if changed:
            raise InputError(
                f"the column {shortened(changed[0])} was changed (a wider type, or a new secret) after this "
                "statement was made, or its views were registered. Do that again."
            )

    def leads(self, path: str) -> bool:
        """Whether a file has the columns of the view, of the same types in the same order, by its footer.

        path: as `readable` gives it.
        """
        kept = self._leads.at(path)
        if kept.value is not None:
            return kept.value
        with report_unreadable_file(path):
            own, wanted = pq.read_schema(path), pq.read_schema(self.empty)
        return kept.keep(own.names == wanted.names and own.types == wanted.types)

    def readable(self, path: str) -> str:
        """The path of a file of `events` for DuckDB: a file on a disk, or a copy of one in a store."""
        if self.store.files.folder is not None:
            return self.store.table(path)
        copy = self._folder / path.rsplit("/", 1)[-1]
        with self._lock:
            if not copy.exists():
                part = copy.with_suffix(".part")
                with (
                    report_unreadable_file(f"{path} of the warehouse {without_secrets(self.store.uri)}"),
                    self.store.filesystem().open_input_stream(path) as source,
                    part.open("wb") as target,
                ):
                    shutil.copyfileobj(source, target, _COPY_BYTES)
                part.rename(copy)
        return str(copy)


def looked_up(
    files: SiteFiles, contents: Contents, where: Sought, needed: Sequence[str] | None
) -> Found | None:
    """The rows that indexes find for a WHERE, see `query/scans/sought.py`; None if a scan is faster.

    needed: the columns that the statement reads; None: any.
    """
    # A statement has the names of its views: of columns that were renamed since, indexes know others.
    if contents.options.names != files.names:
        return None
    found = find(contents, where, {}, None if needed is None else {*needed})
    return None if found is None or found.rows is None else found


def found_rows(files: SiteFiles, contents: Contents, part: str, found: Found | None) -> FoundSql:
    """The query of the rows of a part of a warehouse: of the rows that indexes found; None: of all rows."""
    conditions = RowConditions([*contents.columns, *files.names.stored_of(contents.columns)])
    whole, cut, pieces, values = dict[str, int](), dict[str, set[BatchRange]](), list[str](), None
    if found is not None and found.values is not None and found.values.num_rows and part != PARTS[1]:
        values = found.values.rename_columns(files.names.stored_of(found.values.column_names))
    is_plain = values is None and _has_all_columns(contents)
    for one in _visible(contents, part):
        rows = None if found is None or found.rows is None else found.rows.get(one.file.path)
        if rows is not None and not len(rows):
            continue
        path = f"{EVENTS}/{one.file.path}"
        contents.store.files.check_links(path)
        path = files.readable(path)
        condition = conditions.of(rows, one.file)
        if condition:
            told = [condition] if one.is_whole else [condition, batches_sql(one.batches)]
            pieces.append(_told_rows(files, path, told, is_alone=is_plain and files.leads(path)))
        elif one.is_whole:
            whole[path] = one.file.rows
        else:
            cut.setdefault(path, set()).update(one.batches)
    if cut:
        pieces.append(_of_batches(parquet_rows([files.empty, *cut], BY_NAME), set().union(*cut.values())))
    # The views name renamed and private columns, also those that the statement does not read.
    if values is not None and not whole and not pieces and not _are_named(files, contents):
        return FoundSql(values, "SELECT * FROM {}".format)
    if whole or values is not None or not pieces:
        pieces.insert(0, f"SELECT * FROM {_rows_of_whole(files, whole, is_plain=is_plain)}")
    if values is None:
        sql = " UNION ALL ".join(pieces)
        return FoundSql(None, lambda _: sql)
    first, others = pieces[0], [f" UNION ALL {piece}" for piece in pieces[1:]]
    return FoundSql(
        values,
        lambda rows: "".join([f"SELECT * FROM ({first} UNION ALL BY NAME SELECT * FROM {rows})", *others]),
    )


def _rows_of_whole(files: SiteFiles, whole: Mapping[str, int], *, is_plain: bool) -> str:
    """SQL of the rows of whole files; is_plain: all of them have all columns."""
    first = _first(files, whole) if is_plain else None
    paths = [files.empty, *whole] if first is None else [first, *(path for path in whole if path != first)]
    return parquet_rows(paths, *([] if is_plain else [BY_NAME]))


def _are_named(files: SiteFiles, contents: Contents) -> bool:
    """Whether the query of the views names columns of what is given here."""
    return bool(files.names.renamed or contents.options.private)


def _told_rows(files: SiteFiles, path: str, told: Sequence[str], *, is_alone: bool) -> str:
    """SQL of the rows of a file that are told; `is_alone` if the file has the columns of the view.

    OFFSET makes DuckDB ask the rest of the statement of these rows, and not of the file, which it would
    decode.
    """
    paths, by_name = ([path], []) if is_alone else ([files.empty, path], [BY_NAME])
    source = parquet_rows(paths, *by_name, f"{FILE_ROW} = true")
    return f"(SELECT * EXCLUDE ({FILE_ROW}) FROM {source} WHERE {' AND '.join(told)} OFFSET 0)"


def _first(files: SiteFiles, whole: Mapping[str, int]) -> str | None:
    """The file that DuckDB looks into first, of about the mean number of rows; None if it has other columns.

    DuckDB takes the columns of the first file for those of all files, and its number of rows for that of each
    file. From this estimate it decides which side of a join it reads first, to filter the other side by it.
    """
    mean = sum(whole.values()) / max(1, len(whole))
    first = min(whole, key=lambda path: abs(whole[path] - mean), default=None)
    return first if first is not None and files.leads(first) else None


def _has_all_columns(contents: Contents) -> bool:
    """Whether the log tells that all files of `events` have all columns: a file lacks those added after it.

    DuckDB looks into all files before it reads one, unless they are known to be of the same columns.
    """
    stored = contents.options.names.stored_of(contents.columns)
    names = [f"null_count.{name}" for name in stored]
    return all(file.stats.get(name) is not None for file in contents.list_events() for name in names)


def _of_batches(rows: str, batches: Iterable[BatchRange]) -> str:
    """SQL of the rows that belong to the batches."""
    ranges = ", ".join(f"({literal(one.source)}, {one.first}, {one.last})" for one in sorted(batches))
    return (
        f"SELECT r.* FROM {rows} r SEMI JOIN (VALUES {ranges}) b(source, first_batch, last_batch) "
        "ON r._source = b.source AND r._batch BETWEEN b.first_batch AND b.last_batch"
    )


def _visible(contents: Contents, part: str) -> Iterator[VisibleFile]:
    """The files of `events` that may hold rows of the part; with all rows of the table each is there once."""
    files = contents.visible_files(part)
    if part != EVENTS or not contents.shows_all_rows():
        yield from files
        return
    for one in {one.file.path: one for one in files}.values():
        yield one if one.is_whole else replace(one, is_whole=True)


def _stored_columns(options: Options) -> dict[str, str]:
    """The columns by their stored names, with Delta's names of their types."""
    return {options.names.stored(name): kind for name, kind in options.columns}
