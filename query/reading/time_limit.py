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
    cancelled: says whether nobody waits for the answer any more; None if that cannot be.
    """

    seconds: float | None
    cancelled: Callable[[], bool] | None

    def begin(self) -> Callable[[], None]:
        """A question begins: what raises TimeLimitReached once its time is over."""
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
