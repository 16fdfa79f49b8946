"""Rows of `events` for a scan of all keys of a window, if that is less work than a scan of the runs.

A narrow window has few rows, and the files of `events` that have none are not opened; runs that were merged
have rows of many ticks in each block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tidemark.query.asking.session import Session
from tidemark.query.keys.key_relation import EventRows
from tidemark.query.keys.window_counts import PairCounts
from tidemark.query.reading.budgets import scan_memory
from tidemark.query.reading.connections import run_watched
from tidemark.query.reading.sql_text import quoted
from tidemark.query.scans.asked_rows import LIVE, TICK, key_name
from tidemark.query.scans.number_counts import NumberCounts, are_few, count_numbers
from tidemark.query.scans.plain_files import FileReading
from tidemark.query.scans.row_source import RowSource
from tidemark.query.scans.sorted_pairs import PairRows, rows_of_pairs
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.snapshots.views import KeysView

T = TypeVar("T")

MOST_TICKS = 2**62  # from the first window to the last: their distances are numbers of 64 bits


@dataclass(frozen=True, slots=True, eq=False)
class EventKeys:
    """The rows of `events` with the keys of a view."""

    session: Session
    view: KeysView

    def rows(self, window: Window) -> EventRows | None:
        """The rows of a window of whole ticks, for a key of one column; None: the runs are to be scanned.

        It is None if DuckDB does not read all files by itself, and where `Session.contents_of` is None.

        Raises DamagedWarehouse for a file of `events` that is missing or damaged.
        """
        source = self._source(window)
        if source is None:
            return None
        rows, batches = source.relation(None)
        if batches is not None:
            return None
        name, is_live = quoted(key_name(1)), f"{quoted(LIVE)}::BIGINT"
        columns = f"{name} AS name, {quoted(TICK)} AS tick, 1 - {is_live} AS history, {is_live} AS live"
        folders = [store.files.folder for store in source.contents.stores if store.files.folder is not None]
        sql = f"(SELECT {columns} FROM ({rows}) WHERE {name} IS NOT NULL)"
        are_counted = source.key_spans and source.plain and are_few(source.key_spans[0], source.plain)
        count = partial(_counted, source, window) if are_counted else None
        return EventRows(sql, source.has_live, source.paths, folders, count)

    def counted(self, windows: Sequence[Window]) -> PairCounts | None:
        """The rows of each key in each of some windows of whole ticks, which ascend.

        None if a sort of whole files cannot count them, and where `Session.contents_of` is None. Errors as
        those of `rows`.
        """
        if windows[-1].stop - windows[0].start > MOST_TICKS:  # one has no start, or no end
            return None
        source = self._source(*windows, ticks=False)
        if source is None or source.buckets is None or not source.buckets.are_windows:
            return None
        source.relation(None)
        found = _paired(source) if source.plain else None
        if found is None:
            return None
        part = source.buckets.windows_of(found.bucket)
        return PairCounts(part, found.code, found.history, found.live, found.names_of, len(windows))

    def files(self, window: Window) -> list[tuple[str, DataFile]] | None:
        """The files that `rows` would read, by their whole paths; None: the runs. Reads nothing itself."""
        source = self._source(window)
        if source is None:
            return None
        return [(f"{store.uri}/{one.file.path}", one.file) for store, one in source.located]

    def _source(self, *windows: Window, ticks: bool = True) -> RowSource | None:
        contents = self.session.contents_of(self.view)
        if contents is None:
            return None
        return RowSource(contents, windows, None, (), {}, None, key=self.view.key.parts, ticks=ticks)


def _counted(source: RowSource, window: Window) -> NumberCounts | None:
    (key,), (span,) = source.key, source.key_spans
    return _watched(source, lambda reading: count_numbers(source.plain, key, span, window, reading))


def _paired(source: RowSource) -> PairRows | None:
    return _watched(source, lambda reading: rows_of_pairs(source, memory=scan_memory(), reading=reading))


def _watched(source: RowSource, read: Callable[[FileReading], T]) -> T:
    """What is read of the plain files; another thread waits for those that read."""
    context, reading = copy_context(), FileReading(source.plain)  # reads are of the question of this thread
    return run_watched(lambda: context.run(read, reading), reading.stop, None, lambda: reading.share)
