"""The decorator that compiles a loop with numba. No other module imports numba, of any package.

Importing numba takes half a second, so the modules with loops are imported only inside the functions that
update or merge. A process that only queries sketches never imports numba.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

Loop = TypeVar("Loop", bound=Callable[..., object])


def compiled(loop: Loop) -> Loop:
    """`loop` compiled to machine code on its first call.

    The machine code is cached on disk, beside the module or in the user's cache folder, whichever can be
    written. The Python function remains available as `.py_func`.
    """
    try:
        result: Any = njit(cache=True, nogil=True)(loop)
    except RuntimeError:  # no cache folder can be written, so every process compiles again
        result = njit(nogil=True)(loop)
    compiled_loop: Loop = result
    return compiled_loop
