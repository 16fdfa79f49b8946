"""Bounds of texts in Delta's statistics: short, and never inside the range that they bound."""

from __future__ import annotations

_TEXT = 32  # characters of a text's bounds, as Delta cuts them
_LAST = "\U0010ffff"  # no character is greater


def text_bounds(low: str, high: str) -> tuple[str, str | None]:
    """A short text that is not greater than `low`, and one that is not less than `high`; None: no such."""
    cut = _TEXT
    while high[cut : cut + 1] == _LAST and cut < 4 * _TEXT:  # nothing that is cut here is greater
        cut += 1
    bound = high if len(high) <= cut else high[:cut] + _LAST
    return low[:_TEXT], bound if bound >= high else None
