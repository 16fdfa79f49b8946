"""Reads ranges of rows of runs: each row group that any range needs is read once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidemark.query.reading.block_reader import BlockReader, Footer, RowGroups
from tidemark.warehouse.integrity.digests import ColumnsByName
from tidemark.warehouse.runs.marks import RunFile


@dataclass(frozen=True, slots=True)
class RowsWanted:
    """Rows start..stop (stop exclusive) of a run, and the columns to read.

    A row is counted as `RunFile.first` counts it.
    """

    files: tuple[RunFile, ...]
    start: int
    stop: int
    columns: tuple[str, ...]


class ReadGroup(NamedTuple):
    """A decoded row group, the position of its first row, and the ranges that need it, by index."""

    block: ColumnsByName
    first: int
    ranges: Sequence[int]


def read_row_ranges(
    blocks: BlockReader,
    root: str,
    wanted: Sequence[RowsWanted],
    dictionaries: Sequence[str] = (),
    *,
    copy: bool = True,
) -> Iterator[ReadGroup]:
    """Each row group of the ranges once, in no defined order.

    root: the folder of the runs table, relative to the warehouse.
    dictionaries: the columns to decode as dictionaries.
    copy: False if the caller keeps nothing of a row group but copies, see `RowGroups`.

    Raises DamagedWarehouse if a file is missing or does not match its marks.
    """
    by_file: dict[tuple[RunFile, tuple[str, ...]], list[int]] = {}
    for i, rows in enumerate(wanted):
        for file in files_with_rows(rows.files, rows.start, rows.stop):
            by_file.setdefault((file, rows.columns), []).append(i)
    parts, needs = [], []
    for (file, columns), ranges in by_file.items():
        footer = blocks.footer(root, file)
        by_group: dict[int, list[int]] = {}
        for i in ranges:
            for group in row_groups(file, footer, wanted[i].start, wanted[i].stop):
                by_group.setdefault(group, []).append(i)
        groups = sorted(by_group)
        parts.append(RowGroups(root, file, groups, columns, dictionaries, copy))
        needs += [(file.first + int(footer.edges[group]), by_group[group]) for group in groups]
    for block, (position, ranges) in zip(blocks.read_each(parts), needs, strict=True):
        yield ReadGroup(block, position, ranges)


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
