"""The calls, rooms and files that DESIGN.md and the docstrings of the packages name are there."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.docs.pages import DOCS, ROOT
from tests.test_boundaries import FLOORS
from tidemark import query, stream, warehouse
from tidemark.query.plots.plots import Plots

rooms: Any = import_module("docs.extension.rooms")  # Sphinx imports it under another name
SURFACE: dict[str, Any] = {
    "query": query,
    "stream": stream,
    "warehouse": warehouse,
    "wh": query.Warehouse,
    "wh.plot": Plots,
}


def wrong_calls(source: str) -> list[str]:
    """The calls of the source that the packages do not have, or not with these keywords."""
    found = []
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        owner, _, name = ast.unparse(call.func).rpartition(".")
        if owner in SURFACE:
            thing = getattr(SURFACE[owner], name, None)
            takes = inspect.signature(thing).parameters if thing else {}
            free = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in takes.values())
            if thing is None or not (free or {one.arg for one in call.keywords} <= takes.keys()):
                found.append(ast.unparse(call))
    return found


def listed_calls(package: str) -> str:
    told = docstring(package).split("ts calls")[1].split("\n\n")
    return dedent(told[1])


@pytest.mark.parametrize(("package", "least"), [("query", 40), ("warehouse", 12), ("stream", 2)])
def test_every_call_that_a_package_lists_is_there(package: str, least: int) -> None:
    calls = listed_calls(package)
    assert sum(isinstance(node, ast.Call) for node in ast.walk(ast.parse(calls))) >= least
    assert wrong_calls(calls) == []


@pytest.mark.parametrize("package", ["query", "warehouse", "stream"])
def test_a_package_lists_all_functions_that_it_has(package: str) -> None:
    public = import_module(f"tidemark.{package}")
    functions = {name for name in public.__all__ if inspect.isfunction(getattr(public, name))}
    assert functions <= set(re.findall(r"\b\w+", listed_calls(package)))


def test_a_call_that_is_not_there_is_caught() -> None:
    assert (
        len(wrong_calls("wh.quantiles(0.5)\nwh.rank(1, latest='7d')\nwarehouse.loading()\nwh.plot.pie()"))
        == 4
    )


def missing_places(page: str) -> list[str]:
    """The rooms and files that a page names and that are not there.

    A file is named from the root, or alone: then it may be anywhere in the packages.
    """
    named = re.findall(r"`([\w/]+(?:\.py|/\w+))`", page)
    assert named
    files = {file.name for package in rooms.PACKAGES for file in (ROOT / package).rglob("*.py")}
    return [name for name in named if not ((ROOT / name).exists() if "/" in name else name in files)]


@pytest.mark.parametrize("page", ["DESIGN.md", "docs/guarantees.md"])
def test_every_file_that_the_design_names_is_there(page: str) -> None:
    assert missing_places((ROOT / page).read_text()) == []


def test_a_file_that_is_not_there_is_caught() -> None:
    page = "`warehouse/runs/levels.py`, `levels.py`, `warehouse/runs/merge.py`, `warehouse/heap`, `merge_.py`"
    assert missing_places(page) == ["warehouse/runs/merge.py", "warehouse/heap", "merge_.py"]


def test_every_file_has_a_first_line_for_the_page_of_rooms(tmp_path: Path) -> None:
    files = [file for package in rooms.PACKAGES for file in (ROOT / package).rglob("*.py")]
    assert len(files) > 250
    assert all(len(rooms.first_lines(file)) > 10 for file in files)
    (tmp_path / "silent.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match="no docstring"):
        rooms.first_lines(tmp_path / "silent.py")


@pytest.mark.parametrize("package", FLOORS)
def test_the_picture_of_the_house_has_every_room(package: str) -> None:
    drawn = re.findall(r">([\w ]+)</text>", (DOCS / "pictures" / "house.svg").read_text())
    assert {package, *" ".join(FLOORS[package]).split()} <= set(drawn)


def test_every_decision_is_in_the_index_and_its_links_lead_somewhere() -> None:
    index = (DOCS / "decisions" / "index.md").read_text()
    pages = sorted(page.name for page in (DOCS / "decisions").glob("0*.md"))
    assert sorted(re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", index)) == pages
    assert [int(name[:4]) for name in pages] == list(range(1, len(pages) + 1))


def misplaced_rooms(package: str, docstring: str) -> list[str]:
    """The rooms that the list of a package's docstring has not, twice, or above one of a higher floor."""
    told = docstring.partition("highest:\n\n")[2].split("\n\n")[0]
    lines = re.findall(r"^ {4}(\w.*?)(?: {2,}.*)?$", told, re.MULTILINE)
    listed = [name for line in lines for name in line.split(", ")]
    floors = {room: level for level, rooms in enumerate(FLOORS[package]) for room in rooms.split()}
    levels = [floors.get(name, -1) for name in listed]
    above = [listed[i] for i in range(1, len(listed)) if levels[i] < levels[i - 1]]
    known = floors | dict.fromkeys(listed)
    return above + [room for room in known if (room in floors, listed.count(room)) != (True, 1)]


def docstring(package: str) -> str:
    return ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text())) or ""


@pytest.mark.parametrize("package", FLOORS)
def test_the_docstring_of_each_package_lists_its_rooms_floor_by_floor(package: str) -> None:
    assert misplaced_rooms(package, docstring(package)) == []


def test_a_room_that_is_missing_or_on_the_wrong_floor_is_caught() -> None:
    told = docstring("jobs")
    assert misplaced_rooms("jobs", told.replace("cli, spark", "cli")) == ["spark"]
    assert misplaced_rooms("jobs", told.replace("cli, spark", "cli, spark, verbs")) == ["verbs", "verbs"]
    swapped = told.replace("cli, spark", "ask, spark").replace("ask, create", "cli, create")
    assert misplaced_rooms("jobs", swapped) == ["spark"]


def unknown_decisions(page: str) -> list[str]:
    """The numbers of decisions, such as 0001, that a page names and that have no page."""
    found = {page.name[:4] for page in (DOCS / "decisions").glob("0*.md")}
    named = re.findall(r"\b00\d\d\b", page)
    assert named
    return [number for number in named if number not in found]


def test_every_decision_that_the_design_names_is_there() -> None:
    design = (ROOT / "DESIGN.md").read_text()
    assert unknown_decisions(design) == []
    assert unknown_decisions(design.replace("0001", "0099")) == ["0099"]


def test_the_design_stays_short_enough_to_be_read_at_once() -> None:
    assert len((ROOT / "DESIGN.md").read_bytes()) <= 40 * 1024, "proofs and details stand beside the code"
