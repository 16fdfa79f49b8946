"""The report of long runs: each run replaces its own section and leaves the others as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import soak

REPORT = """# Long runs

## A

about a

| | |
|---|---:|
| kills | 1 |

## B

about b

| | |
|---|---:|
| kills | 2 |
"""


def test_a_section_that_is_written_again_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    report = tmp_path / "soak.md"
    report.write_text(REPORT)
    soak.write_section("A", "about a", {"kills": 1000}, report)
    assert report.read_text() == REPORT.replace("| kills | 1 |", "| kills | 1,000 |")
    soak.write_section("A", "about a", {"kills": 1}, report)
    soak.write_section("B", "about b", {"kills": 2}, report)
    assert report.read_text() == REPORT


def test_some_of_the_cases_are_the_first_the_last_and_between_and_a_soak_has_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(soak, "HAS_ALL", False)
    assert soak.some(range(9), 4) == [0, 3, 5, 8]
    assert soak.some({"a": 1, "b": 2, "c": 3}, 2) == ["a", "c"]
    assert soak.some(range(3), 4) == soak.some(range(3), 3) == [0, 1, 2]
    monkeypatch.setattr(soak, "HAS_ALL", True)
    assert soak.some(range(9), 4) == [*range(9)]


def test_a_new_section_goes_to_the_end(tmp_path: Path) -> None:
    report = tmp_path / "soak.md"
    report.write_text(REPORT[: REPORT.index("## B")])
    soak.write_section("B", "about b", {"kills": 2}, report)
    assert report.read_text() == REPORT
