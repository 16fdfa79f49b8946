"""The worked notebooks run from a fresh checkout, and what is committed of them is what they bring."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from docs.notebooks.execute import executed, read_notebook
from tests.docs.notebooks import folder_for
from tests.docs.pages import DOCS
from tidemark import query, warehouse

pytestmark = pytest.mark.spark

NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
MOST_BYTES = 150_000


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return folder_for(tmp_path, monkeypatch)


def kinds(notebook: Any) -> list[list[tuple[str, list[str]]]]:
    """Of each cell what comes out: streams by their names, results by their forms."""
    return [
        [(one.get("name", one.output_type), sorted(one.get("data", []))) for one in cell.get("outputs", [])]
        for cell in notebook.cells
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_its_committed_outputs_are_of_its_kind(path: Path, folder: Path) -> None:
    committed = read_notebook(path)
    fresh = executed(path, folder)
    assert kinds(fresh) == kinds(committed)
    assert [cell.source for cell in fresh.cells] == [cell.source for cell in committed.cells]
    assert {one.name for cell in fresh.cells for one in cell.get("outputs", []) if "name" in one} <= {
        "stdout"
    }
    made = folder.parents[1] / "build/notebooks" / path.stem
    uris = sorted({events.parent for events in made.parent.rglob("events")})
    assert query.open(uris).quantile(0.5).N == 20_000
    assert all(warehouse.verify(uri).ok for uri in uris)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_committed_is_small_and_tells_of_no_machine(path: Path) -> None:
    assert path.stat().st_size < MOST_BYTES
    text = path.read_text()
    assert not any(place in text for place in (str(DOCS.parent), "/tmp/", "/home/", "/root", sys.prefix))  # noqa: S108  looked for, not written
    cells = read_notebook(path).cells
    assert all(cell.execution_count for cell in cells if cell.cell_type == "code")
    assert sum("image/png" in one.get("data", {}) for cell in cells for one in cell.get("outputs", [])) >= 1
