"""Which files of `events` have rows of visible batches, of history and live ones, by the table's log.

The log tells of most files that all their rows are visible: those of one batch, and joined files of batches
that follow each other. A batch that was killed between its two commits is not visible, and of a file with
rows of such a batch only some rows are. If the files have as many rows as the visible batches, there is no
such batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.events.reader import BatchRange, may_contain

_UNCUT = 32  # characters of text that statistics tell whole
_BOUNDS = ("min._source", "max._source", "min._batch", "max._batch")


@dataclass(frozen=True, slots=True)
class VisibleFile:
    """A file of `events`, and which of its rows are visible on one side.

    is_live: whether that side is the live one.
    batches: the visible ranges of this side of which it may have rows.
    is_whole: whether all rows of the file are of these, as far as statistics and numbers of rows tell.
    """

    file: DataFile
    is_live: bool
    batches: tuple[BatchRange, ...]
    is_whole: bool


def visible_files(
    files: Iterable[DataFile],
    history: Sequence[BatchRange],
    live: Sequence[BatchRange],
    *,
    all_visible: bool = False,
) -> tuple[VisibleFile, ...]:
    """The files that may have rows of the ranges, those of history first; a file may be there for both sides.

    all_visible: whether the files have rows of these ranges alone.

    O(files) where the log has their sources, else O(files * ranges).
    """
    sides = [list(_of(files, ranges, is_live)) for is_live, ranges in ((False, history), (True, live))]
    if all_visible:
        others = [{one.file.path for one in side} for side in reversed(sides)]
        sides = [
            [replace(one, is_whole=one.is_whole or one.file.path not in other) for one in side]
            for side, other in zip(sides, others, strict=True)
        ]
    return tuple(one for side in sides for one in side)


def _of(files: Iterable[DataFile], ranges: Sequence[BatchRange], is_live: bool) -> Iterable[VisibleFile]:
    by_source: dict[str, list[BatchRange]] = {}
    for one in ranges:
        by_source.setdefault(one.source, []).append(one)
    for file in files:
        first, last, source = _known(file)
        candidates = ranges if source is None else by_source.get(source, ())
        held = tuple(one for one in candidates if may_contain(file, one))
        is_whole = source is not None and any(one.first <= first and last <= one.last for one in held)
        if held:
            yield VisibleFile(file, is_live, held, is_whole)


def _known(file: DataFile) -> tuple[int, int, str | None]:
    """The first and the last batch of a file, and their source; None if the file's statistics do not tell."""
    low, high, first, last = (file.stats.get(name) for name in _BOUNDS)
    is_one = None not in {low, first, last} and low == high and len(str(low)) < _UNCUT
    return (first or 0, last or 0, low if is_one else None)
