"""Docstrings as the code has them, plain text, made into reStructuredText for the reference.

    `code`                          is code
    name: text, or name    text     with the rest of its text indented, is an entry of a list
    an indented paragraph           is shown as it stands

Everything else is text, and characters that reStructuredText would read something into are escaped.
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

_NAMED = re.compile(r"(?P<names>[A-Za-z_`][\w`]*(?:, [\w`]+)*)(?:: | {2,}|$)(?P<text>.*)")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _rewrite)
    return {"parallel_read_safe": True}


def _rewrite(_app: Sphinx, _kind: str, _name: str, _thing: Any, _options: Any, lines: list[str]) -> None:
    lines[:] = restructured(lines)


def restructured(lines: list[str]) -> list[str]:
    """The docstring's lines as reStructuredText; the first paragraph is its summary, and never a list."""
    paragraphs = [
        list(group) for is_text, group in groupby(lines, lambda line: bool(line.strip())) if is_text
    ]
    found: list[str] = []
    for paragraph in paragraphs:
        entries = _entries(paragraph) if found else []
        found += [*(_list(entries) if entries else _paragraph(paragraph)), ""]
    return found


def _paragraph(lines: list[str]) -> Iterator[str]:
    if lines[0].startswith(">>>"):
        yield from lines
    elif lines[0].startswith(" "):
        yield from ["::", "", *lines]
    else:
        yield from map(_escaped, lines)


def _list(entries: list[tuple[str, str]]) -> Iterator[str]:
    for names, text in entries:
        shown = ", ".join(f"``{name}``" for name in names.replace("`", "").split(", "))
        yield from [shown, f"    {_escaped(text)}", ""]


def _entries(lines: list[str]) -> list[tuple[str, str]]:
    """The entries of a list; none where the paragraph is no list."""
    found: list[tuple[str, str]] = []
    for line in lines:
        named = _NAMED.fullmatch(line)
        if line.startswith(" ") and found:
            names, text = found.pop()
            found.append((names, f"{text} {line.strip()}".strip()))
        elif named:
            found.append((named["names"], named["text"].strip()))
        else:
            return []
    return found


def _escaped(text: str) -> str:
    """Code in double backquotes, and the rest without a meaning to reStructuredText."""
    parts = re.split(r"`([^`]+)`", text)
    parts[::2] = (re.sub(r"([\\*|_])", r"\\\1", part) for part in parts[::2])
    parts[1::2] = (f"``{part}``" for part in parts[1::2])
    return "".join(parts)
