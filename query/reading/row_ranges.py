"""Reads ranges of rows of runs: each row group that any range needs is read once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tidemark.query.reading.block_reader import GROUPS_PER_TASK, BlockReader, Footer
from tidemark.warehouse.integrity.digests import ColumnsByName
from tidemark.warehouse.runs.marks import RunFile

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RowsWanted:
    """Rows start..stop (stop exclusive) of a run, and the columns to read.

    A row is counted as `RunFile.first` counts it.
    """

    files: tuple[RunFile, ...]
    start: int
    stop: int
    columns: tuple[str, ...]


# Called with a decoded row group, the position of its first row, and the ranges that need it, by index.
Process = Callable[[ColumnsByName, int, Sequence[int]], list[T]]


def read_row_ranges(
    blocks: BlockReader,
    root: str,
    wanted: Sequence[RowsWanted],
    process: Process[T],
    dictionaries: Sequence[str] = (),
    *,
    copy: bool = True,
) -> tuple[list[T], int]:
    """The results of `process` for all row groups of the ranges, in no defined order, and how many were read.

    root: the folder of the runs table, relative to the warehouse.
    dictionaries: the columns to decode as dictionaries.
    copy: False if `process` keeps nothing of a row group but copies, see `BlockReader.read`.

    Raises DamagedWarehouse if a file is missing or does not match its marks.
    """
    by_file: dict[tuple[RunFile, tuple[str, ...]], list[int]] = {}
    for i, rows in enumerate(wanted):
        for file in files_with_rows(rows.files, rows.start, rows.stop):
            by_file.setdefault((file, rows.columns), []).append(i)
    blocks.fetch_footers(root, [file for file, _ in by_file])
    tasks = []
    for (file, columns), ranges in by_file.items():
        footer = blocks.footer(root, file)
        by_group: dict[int, list[int]] = {}
        for i in ranges:
            for group in row_groups(file, footer, wanted[i].start, wanted[i].stop):
                by_group.setdefault(group, []).append(i)
        groups = sorted(by_group)
        for first in range(0, len(groups), GROUPS_PER_TASK):
            share = {group: by_group[group] for group in groups[first : first + GROUPS_PER_TASK]}
            tasks.append((file, columns, footer.edges, share))

    results: list[T] = []
    for file, columns, edges, share in blocks.fetched(
        root, tasks, lambda task: (task[0], [*task[3]], task[1])
    ):
        decoded = blocks.read(root, file, list(share), columns, dictionaries, copy=copy)
        for (group, ranges), block in zip(share.items(), decoded, strict=True):
            results += process(block, file.first + int(edges[group]), ranges)
    return results, sum(len(share) for *_, share in tasks)


def files_with_rows(files: Sequence[RunFile], start: int, stop: int) -> list[RunFile]:
    """The files that hold rows of start..stop (stop exclusive)."""
    if start >= stop:
        return []
    return [file for file in files if start < file.first + file.rows and file.first < stop]


def row_groups(file: RunFile, footer: Footer, start: int, stop: int) -> range:
    """The row groups of a file that hold rows of start..stop (stop exclusive)."""
    start, stop = max(start - file.first, 0), min(stop - file.first, int(footer.edges[-1]))
    if start >= stop:
        return range(0)
    first = int(footer.edges.searchsorted(start, side="right")) - 1
    return range(first, int(footer.edges.searchsorted(stop, side="left")))
