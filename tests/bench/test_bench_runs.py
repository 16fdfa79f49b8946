"""The benchmarks run at small sizes, assert their answers and write their report. Nothing is timed here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench import report

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.spark
def test_every_part_asserts_its_answers_and_writes_its_section(tmp_path: Path) -> None:
    out, work = tmp_path / "out", tmp_path / "work"
    work.mkdir()
    command = [sys.executable, "-m", "bench", "--quick", "--out", str(out), "--work", str(work)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.count("answers of") >= 3
    text = (out / "report.md").read_text()
    for part in report.PARTS:
        assert f"<!-- part: {part} -->" in text
    pictures = (
        "latency.png",
        "accuracy.png",
        "sketches.png",
        "distinct-space.png",
        "distinct-choices.png",
        "distinct-cost.png",
        "geometric.png",
        "persistence-lists.png",
        "persistence-bitmaps.png",
        "persistence-forgetting.png",
        "windowed-count-min.png",
        "splitter.png",
        "topico.png",
    )
    for picture in pictures:
        assert (out / picture).stat().st_size > 10_000
        assert f"({picture})" in text
    assert not list(work.iterdir())


def test_a_part_that_is_run_again_leaves_the_others_sections(tmp_path: Path) -> None:
    for part, value in (("query", 1.0), ("accuracy", 2.0), ("distinct-sketches", 4.0), ("query", 3.0)):
        section = report.Section(part, f"about {part}")
        section.add(f"figure of {part}", value, "x", 2.5)
        report.write(section, tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert text.index("figure of query") < text.index("figure of accuracy")
    assert text.index("figure of accuracy") < text.index("figure of distinct-sketches")
    assert ("3 x | **missed**" in text, "2 x | met" in text, "| 1 x |" in text) == (True, True, False)


def test_a_report_with_text_outside_of_its_parts_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    section = report.Section("query", "about query")
    report.write(section, tmp_path)
    text = path.read_text().replace("<!-- part: query -->\n", "")
    path.write_text(text)
    with pytest.raises(ValueError, match="outside of its parts"):
        report.write(section, tmp_path)
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("value", "at_least", "met"),
    [(2.0, False, True), (2.1, False, False), (2.0, True, True), (1.9, True, False)],
)
def test_a_figure_meets_its_target_or_misses_it(value: float, at_least: bool, met: bool) -> None:
    assert report.Figure("f", value, "x", 2.0, at_least).met is met
