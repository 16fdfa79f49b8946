"""Where the rows of a file of `events` were first written, if the file was written anew.

Model. The *origin* of a row is (file, row): the id of the file in which it was first written, and its number
there. Maintenance and wider types write rows anew in their order, so the rows of a new file are *pieces* of
earlier files: (origin file, first row, rows). The footer of the new file has them, composed with those of the
files that it was made from. So an origin stays the same however often its row is written anew.

When rows leave a file, the rows of origin files that lose no row keep their origins. The other rows have the
new file as their origin from then on: the runs that have them are built again anyway. So at each version of
`events`

    under the name of an origin file there are all of the rows that it was written with, or none.

A footer depends on no version of the table, and files never change. So it is right for readers of all
versions of `events`.

A file without this text is the origin of its own rows: a file of new rows, of another tool, or of more than
MOST_PIECES pieces. The text names its file, because some tools copy the texts of a footer into the files that
they write; in these it is not read.

The text also has how many rows of each origin file are NULL in each column that has statistics, because an
index has no places of these (projections/row_index.py).
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from tidemark.warehouse.columns.value_encoding import as_numpy_bools, single_array
from tidemark.warehouse.integrity.sealed_files import SealedFile

KEY = "tidemark.origins"
MOST_PIECES = 2**14  # about 4 bytes each in the footer, which every reader of the file parses

Ints = NDArray[np.int64]


def file_id(path: str) -> int:
    """A 64-bit hash of the path of a file of `events`, relative to the table.

    A file never changes and its path is never used again, so the id stands for its content.
    """
    return xxhash.xxh3_64_intdigest(path.encode()) - 2**63


@dataclass(frozen=True, slots=True, eq=False)
class Origins:
    """The origins of the rows of a file, as pieces in the order of the rows.

    files  (pieces,) the ids of the origin files
    first  (pieces,) the number of the first row of each piece in its origin file
    rows   (pieces,) how many rows each has, more than 0
    nulls  by stored column, how many rows are NULL by the id of their origin file, 0 where it is not there
    """

    files: Ints
    first: Ints
    rows: Ints
    nulls: Mapping[str, Mapping[int, int]]

    @property
    def nbytes(self) -> int:
        """The memory, about."""
        return 3 * self.files.nbytes + 100 * sum(map(len, self.nulls.values()))

    def of_rows(self, start: int, stop: int) -> tuple[Ints, Ints]:
        """The origin file and the origin row of each of the rows start..stop, the end exclusive."""
        ends = np.cumsum(self.rows)
        numbers = np.arange(start, stop)
        piece = np.searchsorted(ends, numbers, side="right")
        return self.files[piece], self.first[piece] + numbers - (ends - self.rows)[piece]

    def to_text(self, path: str) -> str:
        """The text of the footer of the file at this path, relative to the table."""
        known, codes = np.unique(self.files, return_inverse=True)
        places = {file: place for place, file in enumerate(known.tolist())}
        pieces = np.diff(np.stack([codes, self.first, self.rows]), prepend=0, axis=1).astype("<i8")
        nulls = {
            name: [[places[file], count] for file, count in counts.items() if count]
            for name, counts in self.nulls.items()
        }
        packed = b64encode(zlib.compress(pieces.tobytes())).decode()
        return json.dumps({"of": path, "files": known.tolist(), "pieces": packed, "nulls": nulls})

    @classmethod
    def of_text(cls, text: str, path: str, rows: int) -> Origins | None:
        """Decodes `to_text`; None if it is of another path. ValueError if it is malformed."""
        try:
            given: dict[str, Any] = json.loads(text)
            return cls._decoded(given, rows) if given["of"] == path else None
        except (KeyError, IndexError, TypeError, zlib.error) as error:
            raise ValueError(f"its origins cannot be read: {error!r}") from error

    @classmethod
    def _decoded(cls, given: Mapping[str, Any], rows: int) -> Origins:
        known = np.array(given["files"], np.int64)
        content = zlib.decompress(b64decode(given["pieces"]))
        codes, first, counts = np.frombuffer(content, "<i8").reshape(3, -1).astype(np.int64).cumsum(axis=1)
        nulls = {
            name: {int(known[place]): count for place, count in pairs}
            for name, pairs in given["nulls"].items()
        }
        if counts.sum() != rows or (counts.size and counts.min() < 1):
            raise ValueError(f"its origins are not those of {rows} rows")
        return cls(known[codes], first, counts, nulls)


def origins_of(file: SealedFile, path: str) -> Origins | None:
    """The origins that the footer of an open file tells; None if the file is the origin of its own rows.

    path: relative to the table. ValueError if the text is damaged.
    """
    text = file.text(KEY) if file.is_sealed else None
    return None if text is None else Origins.of_text(text, path, file.metadata.num_rows)


def origins_in(file: SealedFile, path: str) -> Origins:
    """The origins of the rows of an open file: those in its footer, else the file itself.

    path: relative to the table. ValueError if the text is damaged.
    """
    told = origins_of(file, path)
    if told is not None:
        return told
    return Origins(np.array([file_id(path)]), np.zeros(1, np.int64), np.array([file.metadata.num_rows]), {})


@dataclass(frozen=True, slots=True, eq=False)
class StayingOrigins:
    """The origins of the rows that stay when other rows leave a file.

    told: the origins of all rows of the file. touched: the ids of the origin files that lose rows.
    """

    told: Origins
    touched: Ints

    @classmethod
    def of(cls, file: SealedFile, path: str, leaves: NDArray[np.bool_]) -> StayingOrigins | None:
        """The origins in an open file; None if the new file is the origin of all rows that stay.

        path: relative to the table. leaves: whether each row of the file leaves. ValueError if what the
            footer tells is damaged.
        """
        told = origins_of(file, path)
        if told is None:
            return None
        starts = np.cumsum(told.rows) - told.rows
        loses = np.add.reduceat(leaves, starts, dtype=np.int64) > 0
        touched = np.unique(told.files[loses])
        return None if np.isin(told.files, touched).all() else cls(told, touched)

    def of_rows(self, numbers: Ints, new_file: int, left: int) -> tuple[Ints, Ints]:
        """The origin file and the origin row of rows that stay, by their numbers in the file, which ascend.

        new_file: the id of the file that they are written to. left: how many rows it has before them.
        """
        first, last = int(numbers[0]), int(numbers[-1])
        files, rows = (column[numbers - first] for column in self.told.of_rows(first, last + 1))
        is_touched = np.isin(files, self.touched)
        own = np.arange(left, left + len(numbers))
        return np.where(is_touched, new_file, files), np.where(is_touched, own, rows)


class OriginsCollector:
    """Collects the origins of the rows of a new file, in order, and counts the NULLs of these columns."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._parts: list[Ints] = []
        self._pieces = 0
        self._nulls: dict[str, dict[int, int]] = {name: {} for name in columns}

    def add(self, rows: pa.Table, origins: tuple[Ints, Ints]) -> None:
        """Adds rows, each with its origin file and origin row."""
        files, numbers = origins
        if not len(files) or self._pieces > MOST_PIECES:
            return
        starts_anew = (np.diff(files) != 0) | (np.diff(numbers) != 1)
        starts = np.concatenate([[0], np.flatnonzero(starts_anew) + 1])
        part = np.stack([files[starts], numbers[starts], np.diff(starts, append=len(files))])
        self._parts.append(part)
        self._pieces += len(starts)
        for name, counts in self._nulls.items():
            self._count(counts, rows.column(name), files)

    def finish(self) -> Origins | None:
        """The origins; None if there are too many pieces."""
        if not self._parts or self._pieces > MOST_PIECES:
            return None
        files, first, rows = _joined(np.concatenate(self._parts, axis=1))
        return Origins(files, first, rows, self._nulls)

    @staticmethod
    def _count(counts: dict[int, int], column: pa.ChunkedArray, files: Ints) -> None:
        if not column.null_count:
            return
        known, numbers = np.unique(files[as_numpy_bools(single_array(column.is_null()))], return_counts=True)
        for file, number in zip(known.tolist(), numbers.tolist(), strict=True):
            counts[file] = counts.get(file, 0) + number


def _joined(pieces: Ints) -> tuple[Ints, Ints, Ints]:
    """The pieces; pieces that follow each other are joined."""
    files, first, rows = pieces
    follows = (np.diff(files) == 0) & (first[1:] == first[:-1] + rows[:-1])
    starts = np.concatenate([[0], np.flatnonzero(~follows) + 1])
    return files[starts], first[starts], np.add.reduceat(rows, starts)
