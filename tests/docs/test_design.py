"""The public surface that DESIGN.md lays out is there, with these very words."""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

import pytest

from tests.docs.pages import DOCS, ROOT, blocks
from tests.test_boundaries import FLOORS
from tidemark import query, stream, warehouse
from tidemark.query.plots.plots import Plots

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


def test_every_call_of_the_design_is_there() -> None:
    surface = "\n".join(block.text for block in blocks(ROOT / "DESIGN.md") if block.kind == "python")
    assert surface.count("wh.") > 10
    assert wrong_calls(surface) == []


def test_a_call_that_is_not_there_is_caught() -> None:
    assert (
        len(wrong_calls("wh.quantiles(0.5)\nwh.rank(1, latest='7d')\nwarehouse.loading()\nwh.plot.pie()"))
        == 4
    )


def missing_files(table: str) -> list[str]:
    """The files of a table `| concept | room | files |` that are not there.

    A file is named within its room, or with a slash: then within the room or from the root.
    """
    rows = re.findall(r"^\| [^|]+ \| ([\w/]+) \| (.+) \|$", table, re.MULTILINE)
    places = [(room, file) for room, files in rows for file in re.findall(r"`([\w/]+\.py)`", files)]
    assert places
    return [f"{room}: {file}" for room, file in places if not any(map(_there, (f"{room}/{file}", file)))]


def _there(path: str) -> bool:
    return "/" in path and (ROOT / path).is_file()


def test_every_file_of_the_table_of_concepts_is_there() -> None:
    section = (ROOT / "DESIGN.md").read_text().split("### 7.2 ")[1].split("\n### ")[0]
    assert missing_files(section) == []


def test_a_file_that_is_not_there_is_caught() -> None:
    assert missing_files("| a merge | warehouse/runs | `levels.py`, `merge.py` |") == [
        "warehouse/runs: merge.py"
    ]


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
