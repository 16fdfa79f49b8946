"""Figures in the pages come from the report: each is a link to it, and is written from the row that it names.

A page shows a figure as ``[3.3 ms][accurate]`` and says once, at its end, which cell of the report that is:

    [accurate]: docs/bench/report.md#query-latency-blocks-read-memory "lognormal: accurate, median"

The anchor is a part's heading. The title names a row by its first cells, separated by " | ", and then, unless
it is `measured`, the column. A page may leave the unit out, because a table has it in its head: then the link
has the number alone. `python -m bench` writes the pages anew after each part, `python -m bench.figures` does
so at once.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "docs" / "bench" / "report.md"
_SOURCE = re.compile(r'^\[([\w-]+)\]: \S*bench/report\.md#([\w-]+) "([^"]+)"$', re.MULTILINE)


def pages() -> list[Path]:
    """The pages that have figures of the report."""
    found = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    return [page for page in found if page != REPORT and _SOURCE.search(page.read_text())]


def written(page: str, report: str) -> str:
    """The text of a page with each figure as the report has it.

    ValueError if a source names no cell of the report, or if no link shows its figure.
    """
    for name, anchor, title in _SOURCE.findall(page):
        cell = _cell(report, anchor, title)
        shown = re.compile(rf"\[([^\]]+)\]\[{name}\]")
        if not shown.search(page):
            raise ValueError(f"no link shows [{name}]")
        page = shown.sub(partial(_link, name, cell), page)
    return page


def _link(name: str, cell: str, link: re.Match[str]) -> str:
    """A link with the cell as its text: with the unit if the page showed one, else the number alone."""
    return f"[{cell if ' ' in link[1] else cell.split(maxsplit=1)[0]}][{name}]"


def _cell(report: str, anchor: str, title: str) -> str:
    """The cell of the report that a source names; ValueError if there is not exactly one such row."""
    parts = {_slug(text.splitlines()[0]): text for text in re.split(r"^## ", report, flags=re.MULTILINE)[1:]}
    if anchor not in parts:
        raise ValueError(f"the report has no part #{anchor}. It has: {', '.join(parts)}.")
    found, head = [], [""]
    for line in parts[anchor].splitlines():
        row = [cell.strip() for cell in line.strip("|").split(" |")] if line.startswith("|") else None
        if row is None:
            head = [""]
        elif head == [""]:
            head = row
        else:
            found += _found(head, row, title.split(" | "))
    if len(found) != 1:
        raise ValueError(f"#{anchor} has {len(found)} cells that are {title!r}, expected one")
    return found[0]


def _found(head: list[str], row: list[str], names: list[str]) -> list[str]:
    """The cell of a row that begins with the names. The last may be a column; `measured` if it is none."""
    for cells, column in ((names, "measured"), (names[:-1], names[-1])):
        if cells and row[: len(cells)] == cells and column in head:
            return [row[head.index(column)]]
    return []


def _slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and the site make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def write_pages() -> None:
    """Writes the figures of the report into every page that shows one."""
    report = REPORT.read_text()
    for page in pages():
        page.write_text(written(page.read_text(), report))


if __name__ == "__main__":
    write_pages()
