"""Exact sums, counts and ends of rows by code, by a compiled loop that goes through them once.

Model. A finite double is an integer q of 53 bits times a power of two, so each code has a cell for each
exponent that its numbers have, in which integers are added. With q = h * 2**27 + l a cell has the sums of q,
h * h, h * l and l * l. The sums of 512 numbers fit into 64 bits; then they are added to sums of two halves.
At the end they are brought to the units of code_sums.py. Nothing is rounded, so they equal its sums to the
last bit. An integer is its own q, in the cell of the exponent 1, the unit of which is the least double.

The loop runs without Python's lock, so threads add at the same time. To load it takes half a second, and to
compile it some seconds if no process on this machine did before. So no question waits for it: it is loaded by
a thread of its own once a process has added LOAD_ROWS rows with numpy and adds more. A process that asks once
does not load it.

Cost: about 3 nanoseconds a row, a quarter of numpy's. Memory: 8 KB a code, as far as it is touched, and 130
bytes a cell; rows that need more than MOST_CELLS are left to numpy.
"""

from __future__ import annotations

import logging
import os
from threading import Lock, Thread, current_thread
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tidemark.warehouse.columns.code_sums import EachSums, limbs_of
from tidemark.warehouse.columns.exact_sums import STEP, UNIT_BITS
from tidemark.warehouse.per_process import per_process

if TYPE_CHECKING:
    from types import ModuleType

    from tidemark.warehouse.columns.sum_loop import Places

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_LOG = logging.getLogger("tidemark.sums")

LOAD_ROWS = 2**21  # to add so many takes numpy 20 milliseconds
MOST_CODES = 2**10  # whose places are found sooner than the numbers of each are added by numpy
CELLS, MOST_CELLS = 2**8, 2**17  # for which there is room at first, and at most
_NONE = np.zeros(0, bool)
_GREATEST = np.iinfo(np.int64).max
_HALF, _LOW = 32, 27


class Loading:
    """Loads the loop once, in a thread of its own.

    loop: the module of the loop; None until it is loaded.
    """

    def __init__(self) -> None:
        self.loop: ModuleType | None = None
        self._rows, self._lock = 0, Lock()
        self._thread: Thread | None = None

    def added(self, rows: int) -> None:
        """Counts rows that were added without the loop; loads it if LOAD_ROWS were added before them."""
        with self._lock:
            begins = self._rows >= LOAD_ROWS and self._thread is None
            self._rows += rows
            if begins:
                # The process waits for it at its end: to stop in the middle of compiled code could break it.
                self._thread = Thread(target=self._load, name="tidemark-loop")
                try:
                    self._thread.start()
                except RuntimeError as error:  # the system gives no more threads
                    _LOG.warning("rows are added by numpy, because nothing loads the loop: %s", error)

    def wait(self) -> None:
        """Waits until it is no longer being loaded."""
        thread = self._thread
        if thread is not None and thread.is_alive() and thread is not current_thread():
            thread.join()

    def _load(self) -> None:
        try:
            self.loop = _loaded()
        except Exception as error:  # noqa: BLE001  numpy adds on
            _LOG.warning("rows are added by numpy, because numba cannot compile the loop: %s", error)


@per_process
def loading() -> Loading:
    """The one of this process."""
    return Loading()


if hasattr(os, "register_at_fork"):
    # A child that was forked meanwhile would wait forever for locks of imports: none of its threads has them.
    os.register_at_fork(before=lambda: loading().wait())


class LoopedSums:
    """Adds rows by code.

    codes: how many there are.
    """

    def __init__(self, loop: ModuleType, codes: int) -> None:
        self._loop = loop
        self._places: Places = loop.Places(
            cell_of=np.zeros((codes, loop.EXPONENTS), np.int32),
            code_of=np.zeros(CELLS, np.int64),
            used=np.zeros(1, np.int64),
            words=np.zeros((CELLS, 5), np.uint64),
            sums=np.zeros((CELLS, 9), np.int64),
            counts=np.zeros((codes, 4), np.int64),
            infinite=np.zeros((2, codes), np.int64),
            ends=np.tile(np.array([_GREATEST, -_GREATEST - 1]), (codes, 1)),
        )

    @classmethod
    def of(cls, codes: int) -> LoopedSums | None:
        """None for many codes, and until the loop is loaded."""
        loop = loading().loop if codes <= MOST_CODES else None
        return None if loop is None else cls(loop, codes)

    def add(
        self,
        numbers: NDArray[Any],
        codes: Ints,
        least: int = 0,
        is_null: Bools = _NONE,
        is_live: Bools = _NONE,
    ) -> int:
        """Adds rows in their order, and returns how many were added: all up to one that the loop cannot add.

        That is an integer of more than 53 bits, a code that is not among these, or one of too many exponents.

        numbers: stored numbers of one measure. codes: of each row, from `least` on. is_null, is_live: for
            each row; empty if it is true of none.
        """
        is_double = numbers.dtype.kind == "f"
        given = (numbers.view(np.int64), codes, is_null, is_live)
        done: int = 0
        while True:
            rows = [_lent(array[done:]) for array in given]
            done += self._loop.add_rows(*rows, (least, is_double), self._places)
            cells = len(self._places.code_of)
            if done == len(numbers) or self._places.used[0] < cells or cells >= MOST_CELLS:
                return done
            self._grow()

    @property
    def counts(self) -> Ints:
        """(4, codes) the rows of each code that are numbers; live and not NULL; NaN; NULL."""
        return self._places.counts.T

    def ends(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """(codes, 2): the least and the greatest number of each code.

        Without numbers the first one is the greatest that there is, and the second one the least.
        """
        found = self._places.ends
        if dtype.kind != "f":
            return found
        doubles: NDArray[Any] = (found ^ ((found >> 63) & _GREATEST)).view(np.float64)
        doubles[self._places.counts[:, 0] == 0] = np.inf, -np.inf
        return doubles

    def each(self) -> EachSums:
        """The exact sums of each code."""
        places, used = self._places, int(self._places.used[0])
        codes, exponents = np.divmod(places.code_of[:used], self._loop.EXPONENTS)
        steps, shifts = np.divmod(np.maximum(exponents, 1) - 1, STEP)
        units, unit_of = np.unique(steps, return_inverse=True)
        rows, *halves = _emptied(places.words[:used], places.sums[:used]).T
        total, high, mixed, low = ((halves[i], halves[i + 1]) for i in (0, 2, 4, 6))
        squares = ((2 * shifts, low), (2 * shifts + _LOW + 1, mixed), (2 * shifts + 2 * _LOW, high))
        size = len(places.counts)
        limbs = limbs_of(
            len(units) * size, unit_of * size + codes, rows, _halves((shifts, total)), _halves(*squares)
        )
        of_units = limbs.reshape(len(units), size, limbs.shape[1])
        return EachSums(
            dict(zip((units * STEP - UNIT_BITS).tolist(), of_units, strict=True)), places.infinite
        )

    def _grow(self) -> None:
        grown = {
            name: np.concatenate([own, np.zeros_like(own)])
            for name in ("code_of", "words", "sums")
            for own in [getattr(self._places, name)]
        }
        self._places = self._places._replace(**grown)


def _emptied(words: NDArray[np.uint64], sums: Ints) -> Ints:
    """The sums of some cells, with those that wait in words; see `Places` of the loop."""
    found = sums.copy()
    found[:, 0] += words[:, 0].view(np.int64)
    for i in range(1, 5):
        own = words[:, i].view(np.int64) if i == 1 else words[:, i]  # the first sum has a sign
        found[:, 2 * i - 1] += (own >> _HALF).view(np.int64)
        found[:, 2 * i] += (own & ((1 << _HALF) - 1)).view(np.int64)
    return found


def _halves(*sums: tuple[Ints, tuple[Ints, Ints]]) -> list[tuple[Ints, Ints]]:
    return [pair for bits, (above, below) in sums for pair in ((bits + _HALF, above), (bits, below))]


def _lent(array: NDArray[Any]) -> NDArray[Any]:
    """The array as one that is not written, which Arrow's are: the loop is compiled for these alone."""
    lent = array.view()
    lent.flags.writeable = False
    return lent


def _loaded() -> ModuleType:
    """The loop, after it has added a row, so that it is compiled."""
    from tidemark.warehouse.columns import sum_loop

    LoopedSums(sum_loop, 1).add(np.zeros(1), np.zeros(1, np.int64))
    return sum_loop
