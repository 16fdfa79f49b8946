"""The prefixes with a share of the rows, from marks and the blocks at the ends of their ranges.

Model. A window covers its runs as a whole. Of a run the marks tell the rows of `events` before each block, so
a range of names has the rows of the blocks inside of it, and some of the two at its ends. Live rows are known
by name. So there are s sources, and a prefix with `least` rows has at least t = least / s of them in one:

    a block begins inside its range   its mark has the prefix: a mark is greater than all names before it, and
                                      not greater than those from it on, so that it begins like both
    else it lies in one block         which has t rows or more, and is read

So the marks, the blocks with t rows or more and the live names have every such prefix, beside others. Those
that may have `least` rows by the marks are counted exactly, by the blocks at their ends.

Cost: O(marks) steps, and at most two blocks a run for each prefix that is left. Where too many blocks have t
rows, a scan (key_scan.py) is faster; it is taken, too, where a window covers a part of a run.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark.query.keys.key_blocks import KeyHistory, names_and_codes, read_blocks
from tidemark.query.keys.key_scan import Prefix
from tidemark.query.keys.prefix_spans import Span, SpansOf, text_of_span, text_spans, time_spans
from tidemark.warehouse.columns.codes import Ints
from tidemark.warehouse.columns.keys import Key, Name, Names
from tidemark.warehouse.integrity.digests import ColumnsByName
from tidemark.warehouse.projections.key_rows import KeyRows

MOST_FULL = 0.05  # of all blocks, whose names are taken one by one; a scan takes all in twenty times that


@dataclass(frozen=True, slots=True, eq=False)
class _Source:
    """Ascending names, and the rows before each of them and in all, shape (names + 1,).

    is_exact: whether the rows belong to the names; else to blocks that begin with the names.
    """

    names: Sequence[Name]
    before: Ints
    is_exact: bool

    def blocks(self, span: Span) -> tuple[int, int]:
        """The first name or block that may have rows of a span, and the end of those that may."""
        first = bisect_left(self.names, span.low)
        end = len(self.names) if span.high is None else bisect_left(self.names, span.high)
        return (first if self.is_exact else max(0, first - 1)), end

    def most(self, span: Span) -> int:
        """The most rows that a span has here, exact if `is_exact`. O(log names)."""
        first, end = self.blocks(span)
        return int(self.before[max(first, end)] - self.before[first])

    def spans(self, spans_of: SpansOf, least: int) -> Iterable[Span]:
        """The prefixes of its names that may have `least` rows here. O(names)."""
        open_: list[tuple[Span, int]] = []
        last: Name | None = None
        for i, name in enumerate(self.names):
            if name == last:
                continue
            last, spans = name, spans_of(name)
            same = 0
            while same < min(len(open_), len(spans)) and open_[same][0] == spans[same]:
                same += 1
            yield from self._enough(open_[same:], i, least)
            open_[same:] = [(span, i) for span in spans[same:]]
        yield from self._enough(open_, len(self.names), least)

    def _enough(self, ended: Sequence[tuple[Span, int]], end: int, least: int) -> Iterable[Span]:
        for span, first in ended:
            start = first if self.is_exact else max(0, first - 1)
            if self.before[end] - self.before[start] >= least:
                yield span


def prefixes_by_ranges(
    history: KeyHistory, live: KeyRows, cuts: bytes | Sequence[str], least: int
) -> tuple[list[Prefix], int] | None:
    """(the prefixes that have `least` rows, ordered by text; how many rows of keys were read), or None.

    None: a scan is faster. cuts: as in key_scan.prefixes. Raises DamagedWarehouse if a file cannot be read.
    """
    key = history.view.key
    if not all(share.whole for share in history.shares):
        return None
    runs = [
        _Source(_listed(share.marks.keys), np.append(share.marks.counts_before, share.rows), is_exact=False)
        for share in history.shares
    ]
    of_live = _by_name(_listed(live.names), live.codes, live.counts)
    spans_of = text_spans(cuts) if isinstance(cuts, bytes) else time_spans(key, len(cuts))
    share_of_least = max(1, -(-least // max(1, len(runs) + bool(len(live)))))
    full = _full(runs, share_of_least)
    if len(full) > MOST_FULL * sum(len(run.names) for run in runs):
        return None
    found = {span for one in (*runs, of_live) for span in one.spans(spans_of, share_of_least)}
    read = len(live)
    for _, block in read_blocks(history, full, without_ticks=True):
        names = _of_block(key, block)
        read += len(block["count"])
        found.update(names.spans(spans_of, share_of_least))
    likely = [span for span in found if sum(one.most(span) for one in (*runs, of_live)) >= least]
    counts, needs = _inside(runs, likely)
    for run_block, block in read_blocks(history, needs, without_ticks=True):
        names = _of_block(key, block)
        read += len(block["count"])
        for i in needs[run_block]:
            counts[i] += names.most(likely[i])
    return sorted(_answers(key, likely, counts, of_live, least), key=lambda one: (one.text, one.level)), read


def _full(runs: Sequence[_Source], least: int) -> list[tuple[int, int]]:
    """The blocks with `least` rows or more."""
    return [
        (number, int(block))
        for number, run in enumerate(runs)
        for block in np.flatnonzero(np.diff(run.before) >= least)
    ]


def _inside(runs: Sequence[_Source], spans: Sequence[Span]) -> tuple[Ints, dict[tuple[int, int], list[int]]]:
    """The rows of each span in blocks that lie in it, and the spans that each other block may have."""
    counts, needs = np.zeros(len(spans), np.int64), dict[tuple[int, int], list[int]]()
    for number, run in enumerate(runs):
        for i, span in enumerate(spans):
            first, end = run.blocks(span)
            if end - first > 2:
                counts[i] += run.before[end - 1] - run.before[first + 1]
            for block in {first, end - 1} if first < end else ():
                needs.setdefault((number, block), []).append(i)
    return counts, needs


def _answers(key: Key, spans: Sequence[Span], counts: Ints, live: _Source, least: int) -> Iterable[Prefix]:
    for span, whole in zip(spans, counts.tolist(), strict=True):
        rows = whole + live.most(span)
        if rows >= least:
            yield Prefix(text_of_span(key, span), span.level, span.is_key, whole, rows, float(rows), rows)


def _of_block(key: Key, block: ColumnsByName) -> _Source:
    """The names of a block with their rows."""
    names: list[Name] = []
    parts, first = [np.zeros(1, np.int64)], 0
    for found, codes in names_and_codes(key, block["key"]):
        counts = block["count"][first : first + len(codes)]
        first += len(codes)
        listed = _listed(found)
        by_code = codes if not isinstance(found, np.ndarray) else np.arange(len(codes))
        part = _by_name(listed, by_code, counts)
        names += listed
        parts.append(part.before[1:] + parts[-1][-1])
    return _Source(names, np.concatenate(parts), is_exact=True)


def _by_name(names: Sequence[Name], codes: NDArray[np.integer], counts: Ints) -> _Source:
    """The rows of each name, from ascending codes of names and the count of each row."""
    sums = np.concatenate([[0], np.cumsum(counts)])
    return _Source(names, sums[np.searchsorted(codes, np.arange(len(names) + 1))], is_exact=True)


def _listed(names: Names) -> list[Name]:
    return [*names.tolist()] if isinstance(names, np.ndarray) else [*names.to_pylist()]
