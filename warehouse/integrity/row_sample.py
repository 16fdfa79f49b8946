"""A sample of the rows of a batch, to notice batches with the same or nearly the same rows.

A row has a *place*, a hash of its time and its first measure, and the hash of all its columns
(`digests.row_hashes`). The sample is the SIZE least pairs (place, hash) among all rows. So it does not depend
on the order or the division of the rows, samples of parts add up, and of two batches the least pairs of both
together are a uniform sample of their distinct rows (Broder, "On the resemblance and containment of
documents", SEQUENCES 1997). The share of these pairs that both have is the likeness of the batches.

Only the few rows whose place may be among the least are hashed whole: a look at a row takes a few
nanoseconds. If more than HASHED rows have one place, the first of them are hashed.

Rows may repeat by right: a heartbeat without a time, a table of names that is loaded every night. So a batch
with fewer than LEAST distinct rows in its sample says nothing, and without a time column only equal batches
are reported, never nearly equal ones. Where rows have times, batches of other times share no row.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.warehouse.columns.arrow_buffers import arrow_array
from tidemark.warehouse.columns.value_encoding import Measure, encode_values, epoch_micros
from tidemark.warehouse.integrity.digests import PRIME, row_hashes

SIZE = 16
LEAST = 8
NEARLY = 0.75  # of the sampled rows
HASHED = 2**12
_LOOKED_AT = 2**12  # places, to guess which are among the least
_SECOND_PRIME = np.uint64(0xD6E8FEB86659FD93)
_HALF, _SHIFT = np.uint64(32), np.uint64(29)

Pair: TypeAlias = tuple[int, int]
Likeness: TypeAlias = Literal["the same", "nearly the same"]


@dataclass(frozen=True, slots=True)
class RowSample:
    """The number of rows, a sum of hashes of times and first measures, the span of times, and least pairs.

    times   the first and the last one, in microseconds since 1970; None if no row has a time
    """

    rows: int = 0
    digest: int = 0
    times: tuple[int, int] | None = None
    pairs: tuple[Pair, ...] = ()

    def __add__(self, other: RowSample) -> RowSample:
        found = [times for times in (self.times, other.times) if times is not None]
        return RowSample(
            self.rows + other.rows,
            (self.digest + other.digest) % 2**64,
            (min(first for first, _ in found), max(last for _, last in found)) if found else None,
            _least(self.pairs, other.pairs),
        )

    def likeness(self, other: RowSample) -> Likeness | None:
        """Whether two batches have the same rows, or nearly; None if they differ, or it proves nothing."""
        if min(len(self.pairs), len(other.pairs)) < LEAST:
            return None
        if (self.rows, self.digest, self.pairs) == (other.rows, other.digest, other.pairs):
            return "the same"
        if self.times is None or other.times is None:
            return None
        both = set(self.pairs) & set(other.pairs)
        if len(both) < LEAST * NEARLY:
            return None
        sampled = _least(self.pairs, other.pairs)
        return "nearly the same" if sum(pair in both for pair in sampled) >= NEARLY * len(sampled) else None

    def to_json(self) -> dict[str, Any]:
        """The sample as a JSON object."""
        words = np.array(self.pairs, "<u4").reshape(-1, 2)
        return {
            "rows": self.rows,
            "digest": f"{self.digest:016x}",
            "times": self.times,
            "pairs": base64.b64encode(words.tobytes()).decode(),
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> RowSample:
        """The sample of a JSON object; ValueError, TypeError or KeyError if it is none."""
        words = np.frombuffer(base64.b64decode(given["pairs"], validate=True), "<u4").reshape(-1, 2)
        times = None if given["times"] is None else (int(given["times"][0]), int(given["times"][1]))
        pairs = tuple((int(place), int(found)) for place, found in words.tolist())
        return cls(int(given["rows"]), int(given["digest"], 16), times, pairs)


NO_ROWS = RowSample()


def _least(*pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    return tuple(sorted(set().union(*pairs))[:SIZE])


@dataclass(slots=True)
class RowSampler:
    """Takes the sample of rows that come in batches; the first columns of each are those of `names`."""

    names: Sequence[str]
    time: Measure | None
    measure: Measure
    sample: RowSample = NO_ROWS

    def add(self, rows: pa.RecordBatch) -> None:
        """Adds rows."""
        if not rows.num_rows:
            return
        times, words = None, self._words(rows)
        if self.time is not None:
            column = encode_values(self.time, rows.column(self.names.index(self.time.name)))
            micros = epoch_micros(self.time, column.stored)
            words = words + micros.view(np.uint64)
            known = micros[~column.null]
            times = (int(known.min()), int(known.max())) if len(known) else None
        places = words * PRIME
        digest = int((places ^ (places >> _SHIFT)).sum(dtype=np.uint64))
        found = RowSample(rows.num_rows, digest, times)
        self.sample += replace(found, pairs=self._pairs(rows, places >> _HALF))

    def _words(self, rows: pa.RecordBatch) -> NDArray[np.uint64]:
        column = encode_values(self.measure, rows.column(self.names.index(self.measure.name)))
        stored = np.where(column.nan | column.null, column.stored.dtype.type(0), column.stored)
        words: NDArray[np.uint64] = np.ascontiguousarray(stored).view(np.uint64) * _SECOND_PRIME
        return words

    def _pairs(self, rows: pa.RecordBatch, places: NDArray[np.uint64]) -> tuple[Pair, ...]:
        """The least pairs of the rows, or all that can be among the least of the sample."""
        if len(self.sample.pairs) == SIZE:
            return self._pairs_up_to(self.sample.pairs[-1][0], rows, places)
        some = places[:: max(1, len(places) // _LOOKED_AT)]
        limit = np.partition(some, min(SIZE, len(some) - 1))[: SIZE + 1].max()
        pairs = self._pairs_up_to(limit, rows, places)
        if len(pairs) == SIZE or limit == places.max():
            return pairs
        return self._pairs_up_to(np.unique(places)[:SIZE][-1], rows, places)  # many rows have one place

    def _pairs_up_to(self, limit: Any, rows: pa.RecordBatch, places: NDArray[np.uint64]) -> tuple[Pair, ...]:
        chosen = np.flatnonzero(places <= limit)
        if len(chosen) > HASHED:
            chosen = chosen[np.argsort(places[chosen], kind="stable")[:HASHED]]
        taken = rows.take(arrow_array(chosen)).select(list(range(len(self.names))))
        hashes = row_hashes(taken) >> _HALF
        return _least(zip(places[chosen].tolist(), hashes.tolist(), strict=True))
