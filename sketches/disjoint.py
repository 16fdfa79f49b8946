"""What is merged must be disjoint: the one thing about it that a merge can see for itself."""

from collections.abc import Sequence
from typing import Protocol

from tidemark.sketches.errors import InvalidInput


class Counted(Protocol):
    """A sketch, of which n elements went in."""

    @property
    def n(self) -> int:
        """The number of elements."""


def require_disjoint(sketches: Sequence[Counted]) -> None:
    """InvalidInput if an object that holds elements is there more than once; an empty one adds nothing."""
    places: dict[int, int] = {}
    for at, sketch in enumerate(sketches):
        before = places.setdefault(id(sketch), at)
        if before < at and sketch.n:
            raise InvalidInput(
                f"got one sketch twice, as inputs {before} and {at}: a merge with itself would count its "
                f"{sketch.n} elements twice; expected sketches of disjoint streams, each of them once"
            )
