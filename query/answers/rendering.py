"""Rendering of answers: aligned text for terminals, HTML tables for notebooks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from tidemark.warehouse.private.tokens import Token


def text_of(value: Any) -> str:
    """A value as text for people: numbers with thousands separators, bytes in hexadecimal, None as "".

    Times are in UTC, without a zone. Line ends, control characters and invalid UTF-8 are shown as escapes.
    """
    if isinstance(value, bool) or value is None:
        return "" if value is None else str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.10g}"
    if isinstance(value, datetime):
        utc = value if value.tzinfo is None else value.astimezone(UTC)
        return utc.replace(tzinfo=None).isoformat(sep=" ")
    if isinstance(value, Token):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value))


def window_text(window: tuple[Any, Any] | None) -> str:
    """A window in words: (start, end), the end exclusive, None for an open side or for all rows."""
    if window is None:
        return "all rows"
    start, end = window
    if start is None and end is None:
        return "all rows with a time"
    if start is None or end is None:
        return f"before {text_of(end)}" if start is None else f"from {text_of(start)}"
    return f"from {text_of(start)} to before {text_of(end)}"


def group_text(group: Mapping[str, Any]) -> str:
    """A group in words: columns and their values; a list of values is any of them.

    The condition of a scan, whose column is called `where`, is shown as it is.
    """
    return " and ".join(
        f"({value})"
        if column == "where"
        else f"{text_of(column)} in ({', '.join(map(text_of, value))})"
        if isinstance(value, list)
        else f"{text_of(column)} = {text_of(value)}"
        for column, value in group.items()
    )


def text_table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table with columns of equal width, aligned to the right."""
    cells = [list(map(text_of, names)), *([text_of(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(names))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def versions_text(as_of: Mapping[str, Any]) -> str:
    """The versions of the tables in one line; of several warehouses those of each, behind its name."""
    texts = [
        f"{name} ({versions_text(one)})" if isinstance(one, Mapping) else f"{name} {one}"
        for name, one in as_of.items()
    ]
    return ", ".join(texts)


def html_table(
    names: Sequence[str], rows: Sequence[Sequence[Any]], caption: str, bars: Sequence[str] = ()
) -> str:
    """An HTML table. `bars` are drawings as SVG, one per row, in a last column; none adds no column."""
    head = "".join(f"<th>{escape(text_of(name))}</th>" for name in [*names, *(["within"] if bars else [])])
    lines = ["".join(f"<td>{escape(text_of(cell))}</td>" for cell in row) for row in rows]
    if bars:
        lines = [f"{line}<td>{bar}</td>" for line, bar in zip(lines, bars, strict=True)]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    title = f"<caption>{escape(caption)}</caption>"
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def interval_bar(low: Any, value: Any, high: Any) -> str:
    """An SVG drawing of the value inside its certified interval; empty if an end is not finite.

    The line is the interval, scaled to a fixed width. The dot is the answer; an exact value is a dot alone.
    The drawing has the colour of the surrounding text.
    """
    position = _position(low, value, high)
    if position is None:
        return ""
    label = escape(f"{text_of(value)} in [{text_of(low)}, {text_of(high)}]")
    line = "" if low == high else '<path d="M8 3v8M8 7h80M88 3v8" fill="none" stroke-opacity="0.5"/>'
    return (
        f'<svg width="96" height="14" viewBox="0 0 96 14" role="img" aria-label="{label}" '
        f'fill="currentColor" stroke="currentColor"><title>{label}</title>{line}'
        f'<circle cx="{8 + 80 * position:.1f}" cy="7" r="3.5" stroke="none"/></svg>'
    )


def _position(low: Any, value: Any, high: Any) -> float | None:
    """The position of the value between the ends, from 0 to 1; 0.5 if they are equal; None if not finite."""
    if low == high:
        return 0.5
    width = high - low
    if isinstance(width, float) and not math.isfinite(width):
        return None
    return float((value - low) / width)
