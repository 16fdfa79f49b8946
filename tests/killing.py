"""Ends a call at a point that it reaches, in this process, as a SIGKILL would there."""

from __future__ import annotations

from collections.abc import Callable


class Killed(BaseException):
    """In the place of a SIGKILL: nothing catches it, and nothing is done after it."""


def killer(point: str) -> Callable[[str], None]:
    """Ends the call where it reaches the point: for its `progress`."""

    def reached(name: str) -> None:
        if name == point:
            raise Killed

    return reached
