"""The page of the rooms: every room and file of the packages, by the first lines of their docstrings.

Where the page `rooms` says `<!-- rooms -->`, each package gets a section, and each of its folders a table.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

from .made_pages import as_cell, make_part

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("sketches", "warehouse", "stream", "query", "jobs")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    return make_part(app, "rooms", "<!-- rooms -->", lambda: "\n".join(map(_package, PACKAGES)))


def _package(name: str) -> str:
    folders = sorted(path.parent for path in (ROOT / name).rglob("__init__.py"))
    return "\n".join(_room(folder, "##" if folder.name == name else "###") for folder in folders)


def _room(folder: Path, level: str) -> str:
    files = sorted(set(folder.glob("*.py")) - {folder / "__init__.py"})
    rows = [f"| `{file.name}` | {first_lines(file)} |" for file in files]
    table = "\n".join(["| file | what it has |", "|---|---|", *rows]) if rows else ""
    return f"{level} {folder.relative_to(ROOT)}\n\n{first_lines(folder / '__init__.py')}\n\n{table}\n"


def first_lines(file: Path) -> str:
    """The first paragraph of a module's docstring as a line of Markdown; ValueError if it has none."""
    told = ast.get_docstring(ast.parse(file.read_text()))
    if not told:
        raise ValueError(f"{file} has no docstring")
    return as_cell(" ".join(told.split("\n\n")[0].split()))
