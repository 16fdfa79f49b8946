"""Names are data wherever they are printed: markup, formulas and control characters in them mean nothing."""

from __future__ import annotations

import io
import sys
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from rich.console import Console

from tests.jobs.said import tidemark
from tidemark import query, warehouse
from tidemark.jobs.cli import main, terminal
from tidemark.jobs.cli.exit_codes import job_end
from tidemark.jobs.cli.progress import show_progress
from tidemark.warehouse import InputError

NAMES = ("[/2001-03]", "[red]a[/red] :smile:", r"\[x] {x} %s", "a\nb\x1b[31m")
COLUMN = "[red]$\\frac$:smile:"
KEY = "_[/]$x$"
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse whose measure, key and values of the key read like markup and formulas."""
    uri = tmp_path_factory.mktemp("names") / "w"
    rows = pa.table({COLUMN: pa.array([1.0, 2.0, 3.0]), KEY: ["_$x$", "[/]", "[red]r[/]"]})
    warehouse.create(None, uri, COLUMN, key=KEY, groups=[KEY], schema=rows.schema, eps=0.1)
    warehouse.load(None, uri, rows, "b")
    return uri


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_load_prints_the_name_of_its_batch_as_it_is(
    engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    if engine == "spark":
        request.getfixturevalue("spark")
    pq.write_table(pa.table({"x": [1.0]}), tmp_path / "in.parquet")
    line = ["load", "-w", tmp_path / "w", "--input", tmp_path / "in.parquet", "--measure", "x"]
    for name in NAMES if engine == "local" else NAMES[:1]:
        shown = name.encode("unicode_escape").decode() if "\n" in name else name
        said = tidemark(capsys, *line, "--engine", engine, "--batch", name, "-v")
        assert (said.code, said.err) == (0, ""), name
        first, *rest = said.out.splitlines()
        assert first == f"{shown}: loaded, 1 rows"
        assert any("L0: " in text or "L1: " in text for text in rest)
        again = tidemark(capsys, *line, "--engine", engine, "--batch", name)
        assert again.out == f"{shown}: was loaded before, nothing changed\n"


class Terminal(io.StringIO):
    """What is written to it would be on a screen."""

    def isatty(self) -> bool:
        return True


def on_a_terminal(patch: Patch, *line: object) -> str:
    """What the command shows on a wide terminal, without its colours."""
    screen = Terminal()
    with patch.context() as inner:
        inner.setenv("COLUMNS", "500")
        inner.setenv("NO_COLOR", "1")
        inner.setenv("TERM", "dumb")
        inner.setattr(sys, "stdout", screen)
        assert main.main(list(map(str, line))) == 0
    return screen.getvalue()


def check_answers(patch: Patch, uri: Path) -> None:
    """Headers, cells and captions of each kind of answer show the names, whole."""
    for line in (["quantile", 0.5, "--by", KEY], ["top"], ["watch", "--times", 1], ["hitters", 0.1]):
        text = on_a_terminal(patch, *line, "-w", uri)
        shown = (KEY, COLUMN) if line[0] == "quantile" else (KEY,)
        for name in (*shown, "_$x$", "[/]", "[red]r[/]"):
            assert name in text, (line, name, text)


def test_answers_on_a_terminal_show_names_as_they_are(named: Path, monkeypatch: Patch) -> None:
    check_answers(monkeypatch, named)


def test_a_console_of_rich_as_it_comes_is_caught(named: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr("tidemark.jobs.ask.quantiles.console", Console)
    monkeypatch.setattr("tidemark.jobs.ask.watch.console", Console)
    with pytest.raises(Exception, match=r"closing tag|assert"):
        check_answers(monkeypatch, named)


def test_phases_and_errors_show_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """A phase is drawn as it is, and there is no count of tasks while none is known."""
    tracker = SimpleNamespace(getActiveStageIds=list)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))
    screen = Console(file=io.StringIO(), force_terminal=True, width=200, color_system=None)
    with show_progress(spark, screen) as tell:
        tell("merging [/]")
    shown = cast("io.StringIO", screen.file).getvalue()
    assert "merging [/]" in shown
    assert "/?" not in shown

    def fail() -> int:
        raise InputError("no column 'a\x1b[2Jb' [/]")

    with job_end(Namespace(), needs_warehouse=False) as end:
        end.code = fail()
    assert end.code == 2
    assert capsys.readouterr().err == "error: no column 'a\\x1b[2Jb' [/]\n"
    assert terminal.console(stderr=True).stderr


def check_figures(uri: Path) -> None:
    """Each name is in its figure as it is, groups that begin with an underscore too."""
    wh = query.open(uri)
    draws: dict[str, tuple[Any, list[str]]] = {
        "cdf": (wh.plot.cdf, [COLUMN]),
        "histogram": (wh.plot.histogram, [COLUMN]),
        "quantiles": (
            lambda ax: wh.plot.quantiles(0.5, by=KEY, ax=ax),
            [KEY, COLUMN, "_$x$, 0.5", "[/], 0.5", "[red]r[/], 0.5"],
        ),
        "top": (wh.plot.top, [KEY, "_$x$", "[/]"]),
        "persistence": (wh.plot.persistence, [KEY, "_$x$", "[/]"]),
        "distinct": (wh.plot.distinct, [KEY]),
    }
    for kind, (draw, names) in draws.items():
        figure = Figure(figsize=(12, 6))
        draw(ax=figure.subplots())
        cast("Any", FigureCanvasAgg(figure)).draw()  # a wrong formula is an error here
        texts = [text for text in figure.findobj(Text) if text.get_text()]
        for name in names:
            found = [text for text in texts if name in cast("Any", text).get_text()]
            assert found, (kind, name)
            assert not any(text.get_parse_math() for text in cast("Any", found)), (kind, name)


def test_figures_show_names_as_they_are(named: Path) -> None:
    check_figures(named)


def test_a_figure_that_reads_formulas_is_caught(named: Path, monkeypatch: Patch) -> None:
    right = Text.set_parse_math
    monkeypatch.setattr(Text, "set_parse_math", lambda text, _: right(text, True))
    with pytest.raises(ValueError, match="frac"):
        check_figures(named)
