"""Turns of what is timed: a first one warms files and engines and does not count."""

from __future__ import annotations


def turns_of(repeats: int) -> range:
    """The numbers of the turns: -1 warms all, then come those that count. One alone needs no warming."""
    return range(-1 if repeats > 1 else 0, repeats)
