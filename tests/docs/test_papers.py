"""The page of papers: each erratum names a run that is there."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import DOCS, ROOT

PAGE = (DOCS / "papers.md").read_text()
SKETCHES = ROOT / "tests" / "sketches"


def errata(text: str) -> list[tuple[str, str]]:
    """The file of the table's head, and the last cell, of each row of each table of errata."""
    found = []
    for table in re.findall(r"^### Errata of [^\n]*\n\n(.*?)\n(?:\n|\Z)", text, re.MULTILINE | re.DOTALL):
        head, _, *rows = table.split("\n")
        named = re.findall(r"`(test_\w+\.py)`", head)
        found += [(named[0] if named else "", re.split(r"(?<!\\)\|", row)[-2].strip()) for row in rows]
    return found


def check(text: str) -> int:
    """Every erratum has a test, or a mistake of one, that is in the file that it names; returns how many."""
    rows = errata(text)
    for file, cell in rows:
        runs = 0
        for name in re.findall(r"`test_\w+(?:\.py)?`|\"[^\"]+\"", cell):
            if name.endswith(".py`"):
                file = name.strip("`")  # noqa: PLW2901  the tests behind it are in this file
                continue
            shown = name if name.startswith('"') else f"def {name.strip('`')}("
            content = "".join(path.read_text() for path in SKETCHES.glob(file or "test_*.py"))
            assert shown in content, f"{name} is not in {file}"
            runs += 1
        assert runs or cell == "the same", f"no run shows: {cell}"
    return len(rows)


def test_each_erratum_names_a_run_that_is_there() -> None:
    assert check(PAGE) >= 48


@pytest.mark.parametrize(
    "wrong", ["by reading", "`test_of_nothing`", '`test_topk.py`: mistake "none of these"', ""]
)
def test_an_erratum_without_a_run_is_caught(wrong: str) -> None:
    row = "| section 3.1 | the example names L at time 4 twice | the second is G at time 4 |"
    assert row in PAGE
    with pytest.raises(AssertionError):
        check(re.sub(rf"^{re.escape(row)}.*$", lambda _: f"{row} {wrong} |", PAGE, flags=re.MULTILINE))
