"""Every measured figure in the pages is that of the report; no page has one that comes from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.figures import REPORT, ROOT, pages, written

REPORTED = REPORT.read_text()
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
FIRST = [ROOT / "README.md", ROOT / "docs" / "comparison.md", ROOT / "docs" / "index.md"]
SETTINGS = {"20 s"}  # limits that are set, not measured


def without_a_source(page: str) -> list[str]:
    """The times and ratios in the text of a page that are no link to the report."""
    for code in (r"^```.*?^```$", r"^ {4}[^\n]*$", r"`[^`]*`"):
        page = re.sub(code, "", page, flags=re.DOTALL | re.MULTILINE)
    page = re.sub(r"^\[[\w-]+\]: .*$|\[[^\]]+\]\[[\w-]+\]", "", page, flags=re.MULTILINE)
    found = re.findall(r"(?<![\w.,])(?<!at )\d[\d.,]* (?:us|ms|s|times(?= as))\b", page)
    return sorted(set(found) - SETTINGS)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_a_page_shows_the_figures_of_the_report(page: Path) -> None:
    assert written(page.read_text(), REPORTED) == page.read_text(), "python -m bench.figures writes them"


def test_the_pages_that_compare_have_figures_of_the_report() -> None:
    assert {*FIRST[:2]} <= set(pages())


@pytest.mark.parametrize("page", [*FIRST, *GUIDES], ids=lambda page: page.stem)
def test_no_page_has_a_figure_without_a_source(page: Path) -> None:
    assert without_a_source(page.read_text()) == []


def test_a_report_that_was_measured_again_is_written_into_the_pages() -> None:
    page = FIRST[0].read_text()
    again = REPORTED.replace("| 3.3 ms |", "| 7.33 ms |").replace("| 0.26 s |", "| 0.31 s |")
    now = written(page, again)
    assert (now.count("[7.33][accurate]"), now.count("[0.31 s][duckdb-command]")) == (1, 1)
    assert written(now, REPORTED) == page


@pytest.mark.parametrize(
    "wrong",
    ["[3.4][accurate]", "[3.3 s][accurate]", "3.3 ms", "takes 2.1 times as long"],
)
def test_a_figure_that_is_not_the_reports_is_caught(wrong: str) -> None:
    page = FIRST[0].read_text().replace("[3.3][accurate]", wrong)
    try:
        right = written(page, REPORTED) == page
    except ValueError:
        right = False  # nothing shows the figure any more
    assert not right
    assert ("[" in wrong) == (without_a_source(page) == [])


def test_a_source_that_names_no_cell_is_an_error() -> None:
    page = FIRST[0].read_text()
    for old, new in (
        ("#query-latency", "#query-speed"),
        ("accurate, median", "accurate, mean"),
        ("| Spark", "| R"),
    ):
        with pytest.raises(ValueError, match=r"no part|0 cells"):
            written(page.replace(old, new), REPORTED)
