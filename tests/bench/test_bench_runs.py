"""The benchmarks run at small sizes, assert their answers and write their report. Nothing is timed here."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench import report
from bench.cases import outcomes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent.parent
# Parts that run after one another in one call, with the pictures that they draw. Each call is a test of its
# own, which any worker takes (APART in tests/conftest.py).
RUNS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("query", "billion"): ("latency.png",),
    ("keys",): (),
    ("groups",): (),
    ("distinct",): (),
    ("sql", "command"): (),
    ("select", "select-large"): (),
    ("load",): (),
    ("stream",): (),
    ("stores",): (),
    ("accuracy",): ("accuracy.png",),
}
WITHOUT_SPARK: dict[tuple[str, ...], tuple[str, ...]] = {
    ("daily", "daily-heaviest", "change", "sites", "sites-large"): (),
    ("sketches", "distinct-sketches", "persistence-sketches"): (
        "sketches.png",
        "distinct-space.png",
        "distinct-choices.png",
        "distinct-cost.png",
        "persistence-lists.png",
        "persistence-bitmaps.png",
        "persistence-forgetting.png",
    ),
    ("papers",): (
        "geometric.png",
        "hybrid.png",
        "merging.png",
        "windowed-count-min.png",
        "splitter.png",
        "topico.png",
        "skylines.png",
    ),
}


def check_report(out: Path, parts: tuple[str, ...], pictures: tuple[str, ...]) -> None:
    """Each part has its section with figures, and the pictures are there and shown."""
    text = (out / "report.md").read_text()
    for part in parts:
        assert f"<!-- part: {part} -->" in text
    for picture in pictures:
        assert (out / picture).stat().st_size > 10_000
        assert f"({picture})" in text


def test_every_part_is_run_by_one_test() -> None:
    assert sorted(part for parts in (*RUNS, *WITHOUT_SPARK) for part in parts) == sorted(report.PARTS)


@pytest.mark.parametrize("parts", RUNS, ids=" ".join)
def test_a_part_asserts_its_answers_and_writes_its_section(
    spark: SparkSession, tmp_path: Path, parts: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    from bench.__main__ import main  # noqa: PLC0415  it imports all engines, and every run collects this module

    out, work = tmp_path / "out", tmp_path / "work"
    work.mkdir()
    main([*parts, "--quick", "--out", str(out), "--work", str(work)], spark)
    check_report(out, parts, RUNS[parts])
    assert capsys.readouterr().out.count("answers ") >= len(parts)
    assert not list(work.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("parts", WITHOUT_SPARK, ids=" ".join)
def test_parts_without_spark_run_in_a_process(tmp_path: Path, parts: tuple[str, ...]) -> None:
    """As the command that `make bench` gives."""
    out = tmp_path / "out"
    command = [sys.executable, "-m", "bench", *parts, "--quick", "--out", str(out)]
    command += ["--work", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert "wrote" in done.stdout
    check_report(out, parts, WITHOUT_SPARK[parts])
    assert list(tmp_path.iterdir()) == [out]


def test_cases_are_measured_alike_in_this_process_and_in_several() -> None:
    found = outcomes(math.factorial, range(5), at_once=2, together=2)
    assert found == outcomes(math.factorial, range(5), at_once=1) == {0: 1, 1: 1, 2: 2, 3: 6, 4: 24}


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
