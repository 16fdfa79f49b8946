"""The time limit of a question, and who may end the question earlier."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from tidemark.warehouse.errors import TimeLimitReached


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """The limit of each question of a reader.

    seconds: how long it may take; None for no limit.
    cancelled: returns True once nobody waits for the answer any more; None if that cannot happen.
    """

    seconds: float | None
    cancelled: Callable[[], bool] | None

    def begin(self) -> BegunLimit:
        """The limit of a question that begins now."""
        return BegunLimit(self, math.inf if self.seconds is None else time.monotonic() + self.seconds)


@dataclass(frozen=True, slots=True)
class BegunLimit:
    """The limit of a question that has begun; `end` is when its time is over, on the monotonic clock."""

    limit: TimeLimit
    end: float

    def check(self) -> None:
        """TimeLimitReached once the time is over, or nobody waits any more."""
        if self.limit.cancelled is not None and self.limit.cancelled():
            raise TimeLimitReached("the question was cancelled: nobody waits for its answer.")
        if time.monotonic() > self.end:
            raise TimeLimitReached(
                f"the question took longer than {round(self.limit.seconds or 0, 1):g} seconds. Ask about a "
                "shorter window or fewer groups, in another mode, or with more time; `plan` of an answer "
                "says what is read."
            )
