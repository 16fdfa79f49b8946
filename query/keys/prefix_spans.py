"""Prefixes of keys as ranges of names: keys with the same prefix are adjacent in sorted order.

    text     /a/b/      b"/a/b/" <= name < b"/a/b0", the last byte one higher
             a key      the name alone
    times    2001-03    2001-03-01 <= name < 2001-04-01

Names are compared byte by byte, so a separator is searched byte by byte. In UTF-8 text it is only found where
a character begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np

from tidemark.warehouse.columns.keys import Key, Name
from tidemark.warehouse.columns.text_values import after_prefix
from tidemark.warehouse.columns.ticks import DAY_US

_UNITS = tuple(f"datetime64[{unit}]" for unit in "YMDhms")  # of the levels of times


class Span(NamedTuple):
    """A prefix: the names from `low` on and before `high`, which is None without an end.

    level: 1 for the shortest. is_key: whether it is a key itself.
    """

    low: Name
    high: Name | None
    level: int
    is_key: bool


SpansOf = Callable[[Name], list[Span]]  # the prefixes of a name, the shortest first


def text_spans(separator: bytes) -> SpansOf:
    """The prefixes of text: one ends with each separator, and the key itself is the last one."""

    def spans(name: Name) -> list[Span]:
        text, start = cast("bytes", name), 0
        found: list[Span] = []
        while (at := text.find(separator, start)) >= 0:
            start = at + len(separator)
            found.append(Span(text[:start], after_prefix(text[:start]), len(found) + 1, is_key=False))
        if start < len(text) or not text:
            found.append(Span(text, text + b"\0", len(found) + 1, is_key=True))
        return found

    return spans


def time_spans(key: Key, levels: int) -> SpansOf:
    """The prefixes of times: a level is a year, a month and so on; the last level is the key itself."""
    base = _base(key)

    def spans(name: Name) -> list[Span]:
        time, found = np.array([name, name], np.int64).astype(base), []
        for level, unit in enumerate(_UNITS[:levels], 1):
            ends = time.astype(unit) + np.array([0, 1])
            low, high = ends.astype(base).astype(np.int64).tolist()
            found.append(Span(low, high, level, is_key=level == levels))
        return found

    return spans


def text_of_span(key: Key, span: Span) -> str:
    """The prefix as text."""
    if isinstance(span.low, bytes):
        return str(key.value_of(span.low))
    time = np.array([span.low], np.int64).astype(_base(key))
    text = str(time.astype(_UNITS[span.level - 1])[0])
    return text if text[0] != "-" else f"-{text[1:].lstrip('0')}"  # years before 0 as DuckDB shows them


def _base(key: Key) -> str:
    """The numpy type whose numbers names of times are: days or microseconds."""
    return "datetime64[D]" if key.column_type.unit_us == DAY_US else "datetime64[us]"
