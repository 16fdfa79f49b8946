"""Marks, the sparse index of a run: what the marks of every projection have in common."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from warehouse.measures import numbers


@dataclass(frozen=True, slots=True)
class RunFile:
    """One data file of a run: rows first..first+rows of the run, at `path` below the table."""

    path: str
    first: int
    rows: int


def below_table(path: str) -> str:
    """The path of a run's file below its table, from its path below the warehouse."""
    return path[path.index("run=") :]


def flat(lists: pa.ChunkedArray) -> NDArray[np.int64]:
    """The numbers of a column of lists, one list after the other."""
    return numbers(pc.list_flatten(lists))


def named_files(paths: pa.ChunkedArray, positions: NDArray[np.int64], rows: int) -> tuple[RunFile, ...]:
    """The files of a run of so many rows, from the file of each mark: the first row of each is marked."""
    names = paths.combine_chunks().dictionary_encode()
    firsts = np.flatnonzero(np.diff(numbers(names.indices), prepend=-1))
    edges = np.append(positions[firsts], rows)
    return tuple(
        RunFile(names[int(i)].as_py(), int(edges[k]), int(edges[k + 1] - edges[k]))
        for k, i in enumerate(firsts)
    )
