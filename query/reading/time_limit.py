"""How long a question may take, and who may end it before."""

from __future__ import annotations

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

    def begin(self) -> Callable[[], None]:
        """Begins a question. Returns a function that raises TimeLimitReached once the time is over."""
        end = None if self.seconds is None else time.monotonic() + self.seconds

        def stop() -> None:
            if self.cancelled is not None and self.cancelled():
                raise TimeLimitReached("the question was cancelled: nobody waits for its answer.")
            if end is not None and time.monotonic() > end:
                raise TimeLimitReached(
                    f"the question took longer than {round(self.seconds or 0, 1):g} seconds. Ask about a "
                    "shorter window or fewer groups, in another mode, or with more time; `plan` of an answer "
                    "says what is read."
                )

        return stop
