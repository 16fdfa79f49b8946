"""Kinds of companions, registered by name in each process.

A companion is a mergeable summary of one column. Its kind says how rows are summarised, how summaries join
and how they are stored. The tables of a warehouse have the names of kinds alone: nothing that a table names
is imported. A process that writes or asks companions registers their kinds first. Spark's tasks get the kinds
of the process that started them (declared.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.warehouse.errors import InputError, shortened

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")  # of kinds and of companions
_METHODS = ("summarise", "join", "to_bytes", "from_bytes")

S = TypeVar("S")


class CompanionKind(Protocol[S]):
    """A kind of mergeable summaries S.

    What a summary says of rows must hold however the rows were divided and their summaries joined.

    name: the name by which tables know the kind: letters, digits and `_`, at most 60. A change of the stored
        form needs another name.
    deterministic: optional, False if absent. True says that equal rows give equal bytes, however they were
        divided and in whatever order they were joined. Then verify compares the bytes with `events`.

    The object goes to Spark's tasks by pickle, so its class is either in a module that the executors can
    import or in the main program.
    """

    name: str

    def summarise(self, column: pa.Array, times: NDArray[np.datetime64]) -> S:
        """The summary of the rows of one tick.

        column: shape (rows,), the values in the column's own Arrow type, at least one, none of them NULL.
        times: shape (rows,), the times in microseconds in UTC, in any order; NaT for a row without a time.
        """

    def join(self, parts: Sequence[S]) -> S:
        """The summary of all rows of several summaries, at least two. The parts may be changed."""

    def to_bytes(self, summary: S) -> bytes:
        """The stored form of a summary. A checksum is added to it."""

    def from_bytes(self, data: bytes) -> S:
        """The summary of a stored form."""


_REGISTERED: dict[str, CompanionKind[Any]] = {}


def register_companion(kind: CompanionKind[Any]) -> None:
    """Makes a kind of companions known in this process, under its `name`.

    A kind of the same name that was registered before is replaced. Raises InputError unless the object has a
    valid name and the methods of `CompanionKind`.
    """
    name = getattr(kind, "name", None)
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InputError(
            f"a kind of companions has a name of letters, digits and _, at most 60, got {shortened(name)}."
        )
    missing = [method for method in _METHODS if not callable(getattr(kind, method, None))]
    if missing or isinstance(kind, type):
        what = f"{', '.join(missing)} missing" if missing else "got a class, expected an object of it"
        raise InputError(
            f"the kind of companions {shortened(name)} needs the methods {', '.join(_METHODS)}: {what}."
        )
    _REGISTERED[name] = kind


def kind_named(name: str) -> CompanionKind[Any]:
    """The registered kind with this name; InputError if this process has none."""
    kind = _REGISTERED.get(name)
    if kind is None:
        raise InputError(
            f"the kind of companions {shortened(name)} is not registered in this process. Import the module "
            "that registers it, or call warehouse.register_companion(kind) with an object whose name is "
            f"{shortened(name)}."
        )
    return kind


def is_registered(name: str) -> bool:
    """Whether this process has a kind with this name."""
    return name in _REGISTERED
