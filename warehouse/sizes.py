"""Sizes of blocks, files, tasks and batches: how much work and memory a call takes at a time.

They decide how rows are divided among tasks, files, blocks and marks, and so decide speed and memory.
All values keep all promises: exact answers are the same, and approximate ones are within the same eps. The
sizes are not stored: each call may use others, at the same time as calls with the defaults or after them.
`Store` carries them to every task of the call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from tidemark.warehouse.cascade import FAN, is_ambiguous
from tidemark.warehouse.errors import InputError, shortened, whole_number

T = TypeVar("T")

_MAX_SIZE = 2**40


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Sizes that a call works with; every field is a whole number from 1 to 2**40, `kept_rows` also 0.

    Raises InputError for any other value, for `file_rows` that are not (least, most) with least <= most, and
    for a `fan` that is 1, a square or a cube.

    batch_rows       rows of a batch of given rows, where there is no Spark session
    batch_bytes      bytes of such a batch when it is read from a Parquet file, as the footer states them
    group_rows       rows of a row group of `events` at most
    group_bytes      bytes in memory at which a row group of `events` ends, if it has fewer rows
    digest_rows      rows of `events` that a task digests to compare a batch that comes again
    sort_rows        rows of `events` that a task sorts, divided by the number of measures; 2**21 take
                     32 MB of values and ticks, and a few times that while sorting. A task that summarises
                     rows of `events` for the ledger takes as many
    held_bytes       bytes of a projection's sorted rows that a task holds; more are written as chunks
    slice_rows       rows of a merge that a task holds
    file_rows        (least, most) rows of a file of a run; between them there is one file for each core
    block_rows       rows of a block (row group) of a measure's run; marks stand every quarter of it
    span_cells       counts by span and tick that a measure's run stores at most; spans grow beyond it
    key_block_rows   rows of a block of a key run; up to four times as many in very long runs
    key_block_bytes  bytes of the distinct keys of such a block; a single key may be longer
    fan              batches, or ranges of the level below, that one range of the cascade repeats; why it is
                     neither a square nor a cube: cascade.py
    summary_rows     rows that are summarised at once
    summary_parts    summaries of one tick that are held before they are joined
    kept_rows        removed rows that runs may still have, and that readers subtract; a reader holds them.
                     0: a removal takes its rows out of the runs at once
    """

    batch_rows: int = 2**16
    batch_bytes: int = 2**26
    group_rows: int = 2**20
    group_bytes: int = 2**27
    digest_rows: int = 2**21
    sort_rows: int = 2**21
    held_bytes: int = 2**28
    slice_rows: int = 2**20
    file_rows: tuple[int, int] = (2**20, 2**22)
    block_rows: int = 2**14
    span_cells: int = 2**18
    key_block_rows: int = 2**12
    key_block_bytes: int = 2**20
    fan: int = FAN
    summary_rows: int = 2**20
    summary_parts: int = 64
    kept_rows: int = 2**20

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            if name != "file_rows":
                object.__setattr__(self, name, _whole(name, getattr(self, name)))
        if not isinstance(self.file_rows, tuple) or len(self.file_rows) != 2:
            raise InputError(
                f"file_rows must be a pair (least, most) of rows, got {shortened(self.file_rows)}."
            )
        object.__setattr__(self, "file_rows", tuple(_whole("file_rows", rows) for rows in self.file_rows))
        if self.file_rows[0] > self.file_rows[1]:
            raise InputError(
                f"file_rows must be (least, most) with least <= most, got {shortened(self.file_rows)}."
            )
        if is_ambiguous(self.fan):
            raise InputError(
                f"fan must be at least 2, and neither a square nor a cube, got {self.fan}: its ranges would "
                "look like those of another fan. Use 2, 3, 5, 6, 7, 10 or 32, for example."
            )


def _whole(name: str, value: Any) -> int:
    """The size, also of numpy's types; InputError unless it is a whole number of the range."""
    least = 0 if name == "kept_rows" else 1
    if not isinstance(value, bool):
        with suppress(TypeError):
            value = operator.index(value)
    return whole_number(name, value, least, _MAX_SIZE)


DEFAULT = Tuning()


def packed(items: Iterable[T], size: Callable[[T], int], most: int) -> list[list[T]]:
    """The items in their order, in lists of sizes of at most `most` together; a larger item is alone."""
    lists: list[list[T]] = []
    filled = 0
    for item in items:
        if not lists or filled + size(item) > most:
            lists.append([])
            filled = 0
        lists[-1].append(item)
        filled += size(item)
    return lists


def tuning_of(given: object) -> Tuning:
    """The given tuning; DEFAULT for None. InputError if it is neither a Tuning nor None."""
    if given is None:
        return DEFAULT
    if not isinstance(given, Tuning):
        raise InputError(f"tuning must be a tidemark.warehouse.Tuning or None, got {shortened(given)}.")
    return given
