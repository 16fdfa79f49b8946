"""The site builds without a warning and asks nobody for anything; a link that leads nowhere is an error."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT
from tidemark import query, sketches, stream, warehouse
from tidemark.jobs.cli.commands import COMMANDS

pytestmark = pytest.mark.slow


def build(source: Path, folder: Path, *how: str | Path) -> subprocess.CompletedProcess[str]:
    """As `make docs` does: into `docs` in the folder, what changed since the last time."""
    how = ("-q", "-W", "--keep-going", "-d", folder / "doctrees", *how)
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *how, source, folder / "docs"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site() -> Path:
    """The site of `make docs`, of which `make check` has built most."""
    folder = ROOT / "build"
    done = build(DOCS, folder)
    if done.returncode:  # a page with a warning would be taken for a finished one the next time
        shutil.rmtree(folder / "doctrees")
    assert done.returncode == 0, done.stderr
    return folder / "docs"


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
    done = build(tmp_path / "docs", tmp_path / "built", "-c", DOCS)
    assert done.returncode != 0
    told = [line for line in done.stderr.splitlines() if "index.md:" in line]
    assert len(told) == len(links), done.stderr
    assert all("nowhere" in line for line in told)
