"""Shortened lower and upper bounds of text for Delta's statistics."""

from __future__ import annotations

_LENGTH = 32  # characters of a bound, as Delta cuts them
_LAST = "\U0010ffff"  # the greatest character


def text_bounds(low: str, high: str) -> tuple[str, str | None]:
    """A short text that is <= `low`, and a short text that is >= `high`, or None if none was found.

    The upper bound of "abc...z" (more than 32 characters) is its first 32 characters and the greatest
    character after them.
    """
    cut = _LENGTH
    while high[cut : cut + 1] == _LAST and cut < 4 * _LENGTH:  # a bound cut here might be less than `high`
        cut += 1
    bound = high if len(high) <= cut else high[:cut] + _LAST
    return low[:_LENGTH], bound if bound >= high else None
