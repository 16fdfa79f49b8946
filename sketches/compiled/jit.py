"""The one place that knows numba. Only modules of loops import it, and those are imported by what updates.

To import numba takes half a second, so a reader, who only asks, never does.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

Loop = TypeVar("Loop", bound=Callable[..., object])


def compiled(loop: Loop) -> Loop:
    """`loop` as machine code, kept on disk beside the module or in the user's cache if one can be written.

    The plain function stays reachable as `.py_func`.
    """
    try:
        result: Any = njit(cache=True, nogil=True)(loop)
    except RuntimeError:  # neither place can be written: each process compiles for itself
        result = njit(nogil=True)(loop)
    made: Loop = result
    return made
