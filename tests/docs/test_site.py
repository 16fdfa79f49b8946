"""The site builds without a warning and asks nobody for anything; a link that leads nowhere is an error."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT
from tidemark import query, sketches, stream, warehouse
from tidemark.jobs.cli.commands import COMMANDS

pytestmark = pytest.mark.slow


def build(source: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """As `make docs` does."""
    how: list[str | Path] = ["-q", "-W", "--keep-going", "-E", "-c", DOCS, "-d", folder / "doctrees"]
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *how, source, folder / "html"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(DOCS, folder)
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_every_page_is_there_and_fetches_nothing(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS)).with_suffix(".html").exists()
    loads = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=\"(?:https?:)?//", re.IGNORECASE)
    for page in site.rglob("*.html"):
        assert not loads.search(page.read_text()), page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*['\"]?(?:https?:)?//", sheet.read_text()), sheet


def test_the_page_of_the_command_line_has_every_command_and_option(site: Path) -> None:
    page = (site / "command_line.html").read_text()
    for command in COMMANDS:
        assert f'id="{command.name.replace(" ", "-")}"' in page
    for words in ("--max-rejected-fraction F", "--eps EPS", "--between START END", "{quick,accurate,exact}"):
        assert words in re.sub(r"</?span[^>]*>", "", page)


def test_the_reference_has_every_public_name(site: Path) -> None:
    page = (site / "reference.html").read_text()
    asks_the_chosen = {"cdf", "frequency", "heavy_hitters", "histogram", "info", "quantile", "rank", "top"}
    for package in (query, stream, warehouse, sketches):
        for name in set(package.__all__) - asks_the_chosen:
            assert re.search(rf'id="[\w.]*\b{name}"', page), f"{package.__name__}.{name}"


def test_a_link_that_leads_nowhere_is_an_error(tmp_path: Path) -> None:
    links = ["page](nowhere.md)", "anchor](#nowhere)", "file](../nowhere.py)", "far](index.md#nowhere)"]
    good = "# Site\n\n[good](#site) [file](../file.py)\n\n"
    (tmp_path / "docs").mkdir()
    (tmp_path / "file.py").touch()
    (tmp_path / "docs/index.md").write_text(good + "\n\n".join(f"[{link}" for link in links))
    done = build(tmp_path / "docs", tmp_path)
    assert done.returncode != 0
    told = [line for line in done.stderr.splitlines() if "index.md:" in line]
    assert len(told) == len(links), done.stderr
    assert all("nowhere" in line for line in told)
