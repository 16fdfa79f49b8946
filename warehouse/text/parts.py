"""Text files as Spark's tasks get them: lines in their order, in the parts into which Spark cuts a file."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.warehouse.columns.value_encoding import as_numpy_bools

Part = tuple[Any, ...]  # what identifies a part: the values of the columns beside the line
Chunks = Iterator[bytes]  # whole lines


def by_part(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Part, Chunks]]:
    """The lines of each part, in batches of a line (bytes, without its LF) and the columns of its part."""
    pieces = (piece for batch in batches if len(batch) for piece in _pieces(batch))
    for part, group in groupby(pieces, key=lambda piece: piece[0]):
        yield part, (text for _, text in group)


def _pieces(batch: pa.RecordBatch) -> Iterator[tuple[Part, bytes]]:
    """The lines of a batch as text, cut where another part begins."""
    value, *marks = batch.columns
    differs = reduce(pc.or_, (pc.not_equal(mark[1:], mark[:-1]) for mark in marks))
    cuts = (np.flatnonzero(as_numpy_bools(differs)) + 1).tolist()
    for begin, end in pairwise([0, *cuts, len(batch)]):
        lines = pc.binary_join_element_wise(value[begin:end], b"\n", b"")
        yield tuple(mark[begin].as_py() for mark in marks), b"".join(lines.to_pylist())
