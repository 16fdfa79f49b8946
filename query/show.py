"""How answers look: aligned text for terminals, a table for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape
from typing import Any


def text_of(value: Any) -> str:
    """A value as people read it: thousands apart, times in UTC without saying so."""
    if isinstance(value, bool) or value is None:
        return "" if value is None else str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.10g}"
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(sep=" ")
    return str(value)


def window_text(window: tuple[Any, Any] | None) -> str:
    """A window in words."""
    if window is None:
        return "all rows"
    start, end = window
    if start is None or end is None:
        return f"before {text_of(end)}" if start is None else f"from {text_of(start)}"
    return f"from {text_of(start)} to before {text_of(end)}"


def text_table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """An aligned table; numbers and times to the right."""
    cells = [list(names), *([text_of(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(names))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def html_table(names: Sequence[str], rows: Sequence[Sequence[Any]], caption: str) -> str:
    """The same as an HTML table."""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    lines = ("".join(f"<td>{escape(text_of(cell))}</td>" for cell in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    title = f"<caption>{escape(caption)}</caption>"
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
