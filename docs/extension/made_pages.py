"""Pages of which a part is made when the site is built: it takes the place of a mark in the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def make_part(app: Sphinx, page: str, mark: str, part: Callable[[], str]) -> dict[str, bool]:
    """Puts the part in the place of the mark; returns what an extension's `setup` does."""

    def fill(_app: Sphinx, name: str, source: list[str]) -> None:
        if name == page:
            source[0] = source[0].replace(mark, part())

    app.connect("source-read", fill)
    app.connect("env-get-outdated", lambda *_: [page])  # Sphinx does not see that it depends on modules
    return {"parallel_read_safe": True}


def as_cell(text: str) -> str:
    """A text as it stands in a cell of a table of Markdown."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
