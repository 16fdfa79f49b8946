"""Objects that a process makes once, and that a forked child makes anew."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import _lru_cache_wrapper, cache
from typing import TypeVar

T = TypeVar("T")


def per_process(function: Callable[..., T]) -> _lru_cache_wrapper[T]:
    """As functools.cache; a forked child starts with an empty one.

    The child inherits objects, but none of their threads and connections, and locks as others held them.
    """
    cached = cache(function)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=cached.cache_clear)
    return cached
