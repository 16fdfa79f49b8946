"""The command as a process: what it loads, how long it takes, terminals, pipes and signals."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from tests.jobs.said import ROOT, environment, process, to_a_reader_that_ends
from tidemark import query, warehouse
from tidemark.jobs.cli.exit_codes import job_end
from tidemark.jobs.cli.progress import show_progress


def test_a_warehouse_is_made_without_spark(tmp_path: Path) -> None:
    said = process("create", "-w", tmp_path / "w", "--measure", "x", "--time", "at", "--tick", "1 h")
    assert said.code == 0, said.err
    assert "tick_seconds: 3600.0" in said.out
    assert process("quantile", 0.5, "-w", tmp_path / "w").err.startswith("error: ")


LOADED = """
import sys
from tidemark.jobs.cli.main import main
unwanted = {"pyspark", "py4j", "delta", "pandas", "matplotlib", "rich"}
for line in sys.argv[2:]:
    code = main([*line.split(), "-w", sys.argv[1]])
    print(line, code, *sorted(unwanted & set(sys.modules)), sep=", ", file=sys.stderr)
"""
ANSWERS = (
    "quantile 0.99",
    "rank 60 --json",
    "cdf 60",
    "histogram",
    "info",
    "watch --times 1",
    "freq ATL",
    "top",
    "hitters 0.1",
)


def test_an_answer_loads_neither_spark_nor_what_it_does_not_print_with(flights: Path) -> None:
    """One process gives all of them: what none loads, each does not."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, str(flights), *ANSWERS],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.splitlines() == [f"{line}, 0" for line in ANSWERS]


@pytest.fixture(scope="module")
def settled(spark: SparkSession, flights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The flights with all of them in history, and nothing live."""
    copy = tmp_path_factory.mktemp("settled") / "w"
    shutil.copytree(flights, copy)
    warehouse.load(spark, copy)
    return copy


ASKED = """
import sys
from tidemark import query
from tidemark.warehouse.delta import data_files
{}
for path in sys.argv[1:]:
    wh = query.open(path)
    for ask in (wh.quantile, wh.rank, wh.cdf):
        ask([0, 1]), ask([0, 1], last="14d"), ask([0, 1], mode="quick")
    wh.frequency(["ATL", "ORD"]), wh.top(5), wh.heavy_hitters(0.01, last="14d"), wh.histogram(5)
    wh.key_range("A", "B", between=("2001-01-01", "2001-02-01"))
    wh.self_join(between=("2001-01-01", "2001-02-01"))
    wh.sql("SELECT * FROM quantile(0.5)").fetchall(), wh.sql("SELECT count(*) FROM events").fetchall()
    repr(wh.quantile([0.5])), wh.quantile([0.5]).to_json(), wh.info()
print(*sorted({{"pyspark", "pandas", "matplotlib"}} & set(sys.modules)))
"""


@pytest.mark.parametrize(
    ("how", "loads"),
    [("", ""), ("data_files.table_without_rows = lambda schema: schema.empty_table()", "pandas")],
)
def test_a_reader_loads_no_pandas_whether_rows_are_live_or_not(
    how: str, loads: str, flights: Path, settled: Path
) -> None:
    """Also where nothing is live; Arrow's own way to an empty table, which does load it, is caught."""
    line = [sys.executable, "-c", ASKED.format(how), str(settled), *([] if how else [str(flights)])]
    done = subprocess.run(line, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{loads}\n", "")


def test_a_terminal_gets_a_table_that_is_not_cut(flights: Path) -> None:
    said = _in_a_terminal("quantile", "0.5", "0.99", "-w", str(flights))
    assert "─" in said
    answers = query.open(flights).quantile([0.5, 0.99])
    for answer in answers:
        assert f"{answer.rank_hi:,}" in said
    assert "…" not in said
    assert "█" in _in_a_terminal("histogram", "-w", str(flights))
    watched = _in_a_terminal("watch", "-w", str(flights), "--times", "2", "--every", "0.1")
    assert "0.99" in watched


def _in_a_terminal(*argv: str) -> str:
    """What the command writes to a terminal of 80 columns."""
    outer, inner = os.openpty()
    line = [sys.executable, "-m", "tidemark.jobs.cli.main", *argv]
    env = environment(COLUMNS="80", TERM="xterm")
    with subprocess.Popen(line, cwd=ROOT, env=env, stdout=inner, stderr=inner, stdin=inner) as child:
        os.close(inner)
        found = b""
        while True:
            try:
                found += os.read(outer, 65536)
            except OSError:  # the terminal is closed: the command has ended
                break
        os.close(outer)
        assert child.wait(60) == 0, found
    return found.decode()


def test_whoever_has_read_enough_ends_the_command_quietly(flights: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m tidemark.jobs.cli.main"
    line = f"{command} histogram --bins 20000 -w {flights} | head -1"
    said = to_a_reader_that_ends(line)
    assert (said.code, said.err) == (0, "")
    assert "count" in said.out


def test_control_c_ends_watching_as_done(flights: Path) -> None:
    line = [
        sys.executable,
        "-m",
        "tidemark.jobs.cli.main",
        "watch",
        "-w",
        str(flights),
        "--every",
        "0.05",
        "--json",
    ]
    with subprocess.Popen(
        line, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        for _ in range(2):
            assert b'"answers"' in child.stdout.readline()
        began = time.monotonic()
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=30)
        assert (child.returncode, err) == (0, b"")
        assert time.monotonic() - began < 10


@pytest.mark.parametrize("error", [RuntimeError("Answer from Java side is empty"), OSError("gone")])
def test_what_fails_because_of_control_c_is_control_c(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    """py4j ends its connection to Java where a call is cut short, and the next call on the way out fails."""
    given = argparse.Namespace()

    def fail() -> int:
        raise error

    def stopped() -> int:
        try:
            raise KeyboardInterrupt
        finally:
            fail()

    with job_end(given, needs_warehouse=False) as end:
        end.code = stopped()
    assert end.code == 130
    assert capsys.readouterr() == ("", "")
    error.__context__ = None
    is_bug = isinstance(error, RuntimeError)
    with (
        pytest.raises(RuntimeError) if is_bug else nullcontext(),
        job_end(given, needs_warehouse=False) as end,
    ):
        end.code = fail()
    assert capsys.readouterr() == ("", "" if is_bug else "error: gone\n")
    assert end.code == 1


def test_a_bar_on_the_terminal_leaves_what_is_printed_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """`tidemark load > log` has its lines in the log, also while a bar moves on the terminal."""
    tracker = SimpleNamespace(getActiveStageIds=list)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))
    with show_progress(spark, Console(stderr=True, force_terminal=True)) as tell:
        tell("sorting")
        print("b: loaded")
    out, err = capsys.readouterr()
    assert out == "b: loaded\n"
    assert "sorting" in err
