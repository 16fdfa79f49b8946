"""The marks of an index's run: marks of its values, and how many rows it has of each file of `events`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark.warehouse.columns.arrow_buffers import arrow_array
from tidemark.warehouse.columns.value_encoding import as_numpy
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.projections.placed_rows import PlacedRows
from tidemark.warehouse.projections.span_marks import SpanMarks
from tidemark.warehouse.runs.marks import CONTENT_FIELD, PLACES_GROUP


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """The rows of a run by file of `events`: ids ascend, each is there once."""

    files: NDArray[np.int64]
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, files: NDArray[np.int64], rows: NDArray[np.int64]) -> Places:
        """The sums of the rows by file."""
        unique, codes = np.unique(files, return_inverse=True)
        sums = np.zeros(len(unique), np.int64)
        np.add.at(sums, codes, rows)
        return cls(unique[sums > 0], sums[sums > 0])

    @classmethod
    def joined(cls, parts: Sequence[Places]) -> Places:
        """The sums of all parts."""
        nothing = np.empty(0, np.int64)
        return cls.of(
            np.concatenate([nothing, *(part.files for part in parts)]),
            np.concatenate([nothing, *(part.rows for part in parts)]),
        )

    def to_bytes(self) -> bytes:
        """Both columns, little-endian."""
        return np.stack([self.files, self.rows]).astype("<i8").tobytes()

    @classmethod
    def from_bytes(cls, content: bytes) -> Places:
        """Decodes `to_bytes`; ValueError if it is malformed."""
        files, rows = np.frombuffer(content, "<i8").reshape(2, -1).astype(np.int64)
        return cls(files, rows)


@dataclass(frozen=True, slots=True)
class IndexMarks(SpanMarks):
    """The marks of a run of an index."""

    def places(self) -> Places:
        """How many rows it has of each file of `events`, read on every call."""
        with self.source.open() as file:
            content = file.read(PLACES_GROUP, columns=[CONTENT_FIELD.name]).column(0)[0]
            found = Places.from_bytes(content.as_py())
        if int(found.rows.sum()) != self.rows:
            raise DamagedWarehouse(f"the places of run {self.run.name} do not match its {self.rows} rows.")
        return found


def _places_of(rows: PlacedRows) -> Places:
    """The places of rows, of which there is at least one."""
    files = rows.files
    if not any(files.strides):
        return Places(files[:1].copy(), np.array([len(files)]))
    coded = arrow_array(files).dictionary_encode()
    return Places.of(as_numpy(coded.dictionary), np.bincount(as_numpy(coded.indices)))


class RunPlaces:
    """Collects the rows of each file of `events` that a file or a run has."""

    def __init__(self) -> None:
        self._places = Places.joined([])

    def add(self, rows: PlacedRows) -> None:
        """Adds the next rows."""
        self._places = Places.joined([self._places, _places_of(rows)])

    def finish(self) -> Places:
        """The places of all rows added."""
        return self._places

    def check(self, marks: IndexMarks) -> None:
        """DamagedWarehouse unless the marks have these places."""
        if marks.places().to_bytes() != self._places.to_bytes():
            raise DamagedWarehouse(f"the places of run {marks.run.name} do not match its rows")
