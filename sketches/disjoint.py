"""The check that the inputs of a merge are disjoint, as far as a merge can detect it.

Two sketches of the same elements look like sketches of disjoint streams; only the same object passed twice is
detected.
"""

from collections.abc import Sequence
from typing import Any

from tidemark.sketches.errors import InvalidInput


def require_disjoint(sketches: Sequence[Any]) -> None:
    """Raises InvalidInput if a sketch with elements is passed more than once. O(len(sketches))."""
    first_index: dict[int, int] = {}
    for index, sketch in enumerate(sketches):
        previous = first_index.setdefault(id(sketch), index)
        if previous < index and sketch.n:
            raise InvalidInput(
                f"got one sketch twice, as inputs {previous} and {index}: a merge with itself would count "
                f"its {sketch.n} elements twice; expected sketches of disjoint streams, each of them once"
            )
