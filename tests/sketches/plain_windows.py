"""Windowed counters of one cell as their paper tells them: step after step, expiry taken off at once."""

from collections import deque
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def error(before_rate: Fraction, rate: Fraction) -> Fraction:
    """The authors' error function: the larger rate over the smaller."""
    return max(before_rate / rate, rate / before_rate)


@dataclass
class SubCell:
    """begin moves on while the sub-cell expires, and its count falls."""

    begin: int
    last: int
    count: Fraction
    size: int
    has_expired: bool = False


@dataclass
class EagerSplitter:
    """SPLITTER, listing III.4: each tick takes its share off the first sub-cell."""

    window: int
    least: Fraction
    mu: Fraction
    value: Fraction = Fraction(0)
    now: int | None = None
    queue: deque[SubCell] = field(default_factory=deque)

    def tick(self, time: int) -> None:
        for now in range(time if self.now is None else self.now + 1, time + 1):
            # More than one where several arrived at that time.
            for first in [cell for cell in self.queue if cell.begin == now - self.window]:
                rate = first.count / (first.last - first.begin + 1)
                self.value -= rate
                first.count -= rate
                first.begin += 1
                first.has_expired = True
                if first.begin > first.last:
                    self.queue.popleft()
        self.now = time

    def arrive(self, time: int) -> None:
        self.tick(time)
        self.value += 1
        last = self.queue[-1] if self.queue else None
        before = self.queue[-2] if len(self.queue) > 1 else None
        if last is not None and not last.has_expired and last.size < self.least:
            last.count, last.size, last.last = last.count + 1, last.size + 1, time
            return
        whole = last is not None and before is not None and not (last.has_expired or before.has_expired)
        if whole and last is not None and before is not None:
            before_rate = before.count / max(1, last.begin - before.begin)
            if error(before_rate, last.count / (last.last - last.begin + 1)) <= self.mu:
                before.count, before.size, before.last = (
                    before.count + last.count,
                    before.size + last.size,
                    last.last,
                )
                self.queue.pop()
        self.queue.append(SubCell(time, time, Fraction(1), 1))


class PrintedProportional:
    """PROPORTIONAL, listing III.3: a share of the window before is taken off at each step."""

    def __init__(self, window: int) -> None:
        self.window, self.step, self.count, self.snapshot = window, 0, Fraction(0), Fraction(0)

    def arrive(self, counted: bool) -> None:
        if self.step == 0:
            self.snapshot = self.count / self.window
        self.count += counted - self.snapshot
        self.step = (self.step + 1) % self.window


class PrintedLazySplitter:
    """Listings A.1 and A.2 as printed, with one sub-cell: the update comes before the expiry, unclamped."""

    def __init__(self, window: int) -> None:
        self.window, self.value = window, 0.0
        self.begin, self.last, self.count = 0, -1, 0.0

    def arrive(self, time: int) -> None:
        self.value += 1
        if self.last < self.begin:
            self.begin, self.count = time, 0.0
        self.count, self.last = self.count + 1, time
        self.phase_out(time)

    def phase_out(self, time: int) -> None:
        if self.begin <= time - self.window and self.begin <= self.last:
            steps = time - self.window - self.begin + 1
            rate = self.count / (self.last - self.begin + 1)
            self.value -= steps * rate
            self.count -= steps * rate
            self.begin += steps
