"""How many rows of `events` each number of a key has, counted in an array with a place for each number.

This way counts keys whose numbers lie close together, as the statistics of the files tell, such as ids that
are given one after the other. Each thread reads files of its own (plain_files.py) and has its own array.

Cost: some nanoseconds a row, about a quarter of what a hash table takes. Memory: PLACE_BYTES for each
possible number and thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tidemark.query.reading import shares
from tidemark.query.reading.budgets import scan_memory
from tidemark.query.reading.costs import most_numbers
from tidemark.query.reading.shares import each_share, shares_of
from tidemark.query.scans.plain_files import READ_WEIGHT, FileReading, PlainFile, read_row_groups
from tidemark.warehouse.columns.codes import Ints
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.columns.value_encoding import as_numpy, encode_column, single_array

TOGETHER = 2**16  # at least so many numbers are counted in one pass
PLACE_BYTES = 64  # the counts of a thread, those of a pass, and the numbers of a pass with their pieces


class NumberCounts(NamedTuple):
    """Ascending numbers, and how many rows each has in history and on the live side; arrays of shape (k,)."""

    numbers: Ints
    history: Ints
    live: Ints


def are_few(span: tuple[int, int], files: Sequence[PlainFile]) -> bool:
    """Whether a span, its least number and how many there are, has few numbers.

    Few are so many beside the rows of the files, and so many that arrays of all threads fit into the memory.
    """
    has_few = span[1] <= most_numbers(sum(file.rows for file in files))
    return has_few and PLACE_BYTES * shares.CORES * span[1] <= scan_memory()


def count_numbers(
    files: Sequence[PlainFile], key: Key, span: tuple[int, int], window: Window, reading: FileReading
) -> NumberCounts | None:
    """The rows of each number in the window; rows without a key have none.

    files: their columns are the key, and the tick where the window cuts the file.
    span: the least number, and how many there may be from it on; None is returned for numbers outside.

    Errors and stops as those of `read_row_groups`.
    """
    least, size = span

    def of_files(first: int, last: int) -> Ints | None:
        counts = np.zeros((2, size), np.int64)
        for is_live in (False, True):
            own = [file for file in files[first:last] if file.is_live == is_live]
            for numbers in _together(_numbers(own, key, window, reading), max(TOGETHER, size)):
                if int(numbers.min()) < least or int(numbers.max()) >= least + size:
                    return None
                counts[int(is_live)] += np.bincount(numbers - least, minlength=size)
        return counts

    counts, *others = each_share(
        of_files, shares_of(np.array([file.rows for file in files], np.int64), READ_WEIGHT)
    )
    for part in others:
        if counts is None or part is None:
            return None
        counts += part
    if counts is None:
        return None
    places = np.flatnonzero(counts[0] + counts[1])
    return NumberCounts(places + least, *counts[:, places])


def _numbers(files: Sequence[PlainFile], key: Key, window: Window, reading: FileReading) -> Iterator[Ints]:
    """The numbers of the rows of the window that have one."""

    def decode(table: pa.Table, file: PlainFile) -> Ints:
        found = encode_column(key.column_type, single_array(table.column(file.columns[0])))
        is_there = ~found.null if found.null.any() else None
        if len(file.columns) > 1:
            inside = window.holds(as_numpy(table.column(file.columns[1])))
            is_there = inside if is_there is None else inside & is_there
        return found.stored if is_there is None else found.stored[is_there]

    return read_row_groups(files, decode, reading)


def _together(pieces: Iterator[Ints], least: int) -> Iterator[Ints]:
    """The numbers of all pieces in longer ones, of at least so many numbers but for the last."""
    kept: list[Ints] = []
    rows = 0
    for piece in pieces:
        kept.append(piece)
        rows += len(piece)
        if rows >= least:
            yield np.concatenate(kept)
            kept, rows = [], 0
    if rows:
        yield np.concatenate(kept)
