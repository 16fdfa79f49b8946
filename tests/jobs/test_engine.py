"""--engine auto: this process for little; Spark for much, for what it alone reads, and where it is there."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from tests.jobs.said import ROOT, environment
from tests.jobs.test_local_engine import COMMAND, NO_JAVA
from tidemark import query, stream, warehouse
from tidemark.jobs.cli.exit_codes import job_end
from tidemark.jobs.inputs import engine
from tidemark.warehouse import InputError
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.execution.input_files import Found, find_inputs
from tidemark.warehouse.maintain import joinable_bytes

Patch = pytest.MonkeyPatch
ROWS = pa.table({"m": [1.0, 2.0], "k": ["a", "b"]})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Inputs of each kind, and a warehouse with two loaded and two live rows."""
    pq.write_table(ROWS, tmp_path / "in.parquet")
    (tmp_path / "in.csv").write_text("m,k\n1.0,a\n")
    write_deltalake(tmp_path / "delta", ROWS)
    warehouse.create(None, tmp_path / "w", ["m"], schema=ROWS.schema, eps=0.1)
    warehouse.load(None, tmp_path / "w", ROWS, "a")
    stream.append(None, tmp_path / "w", ROWS, source="s", batch=0)
    return tmp_path


def check_choices(place: Path, patch: Patch) -> None:
    """Without a session, then with one; for sizes at the limit and one beyond it."""
    here = Store.from_uri(place / "w")
    size = (place / "in.parquet").stat().st_size
    patch.setattr(engine, "spark_is_there", lambda: False)
    for limit, chosen in ((2 * size, "local"), (2 * size - 1, "spark")):
        patch.setattr(engine, "HERE_BYTES", limit)
        (place / "copy.parquet").write_bytes((place / "in.parquet").read_bytes())
        both = [str(place / "in.parquet"), str(place / "copy.parquet")]
        assert engine.engine_for_files(both, None, here) == chosen
        assert engine.engine_for_files([str(place / "*.parquet")], None, here) == chosen
    assert engine.engine_for_files([str(place / "in.csv")], None, here) == "local"
    assert engine.engine_for_files([str(place / "delta")], None, here) == "spark"
    assert engine.engine_for_files(["s3://bucket/in.parquet"], None, here) == "spark"
    for missing in (str(place / "none.parquet"), str(place / "*.none")):
        with pytest.raises(InputError, match="no such input"):
            engine.engine_for_files([missing], None, here)
    for limit, chosen in ((2, "local"), (1, "spark")):
        patch.setattr(engine, "HERE_ROWS", limit)
        assert engine.engine_for_live_rows(str(place / "w"), None) == chosen
        assert engine.engine_for_history(str(place / "w"), None) == chosen
    waiting = joinable_bytes(here)  # the files of the load and of the append
    assert waiting == sum(file.stat().st_size for file in (place / "w/events").glob("*.parquet")) > 0
    for limit, chosen in ((waiting, "local"), (waiting - 1, "spark")):
        patch.setattr(engine, "HERE_BYTES", limit)
        assert engine.engine_for_maintenance(str(place / "w"), None) == chosen
    patch.setattr(engine, "spark_is_there", lambda: True)
    assert engine.engine_for_maintenance(str(place / "w"), None) == "spark"
    patch.setattr(engine, "HERE_ROWS", 2)
    assert engine.engine_for_files([str(place / "in.parquet")], None, here) == "spark"
    assert engine.engine_for_live_rows(str(place / "w"), None) == "spark"


def test_the_engine_follows_what_is_to_be_done(place: Path, monkeypatch: Patch) -> None:
    check_choices(place, monkeypatch)


def test_a_limit_that_counts_the_first_file_alone_is_caught(place: Path, monkeypatch: Patch) -> None:
    def wrong(given: Any, places: Any) -> Found:
        found = find_inputs(given, places)
        return Found(found.paths[:1], found.is_delta)

    monkeypatch.setattr(engine, "find_inputs", wrong)
    with pytest.raises(AssertionError):
        check_choices(place, monkeypatch)


@pytest.mark.usefixtures("spark")
def test_a_session_of_this_process_is_there() -> None:
    assert engine.spark_is_there()


def test_small_work_starts_no_java(place: Path) -> None:
    """A first load, one of the stream, a further key and maintenance, as commands that name no engine."""
    uri = place / "new"
    lines: list[list[Any]] = [
        ["load", "-w", uri, "--input", place / "in.parquet", "--batch", "a", "--measure", "m"],
        ["load", "-w", place / "w", "--from-stream"],
        ["alter", "-w", uri, "--add-key", "k"],
        ["maintain", "-w", place / "w", "--grace", "0 s"],
    ]
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, json.dumps([[str(word) for word in line] for line in lines])],
        cwd=ROOT,
        env=environment(**NO_JAVA),
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(done.stderr.splitlines()[-1]) == [[0, 0, 0, 0], []], done.stderr
    assert query.open(uri).top(1)[0].count == 1
    assert query.open(place / "w").quantile(0.5).m == 0
    assert "events: 2 files compacted to 1" in done.stdout


def test_control_c_says_what_holds(capsys: pytest.CaptureFixture[str]) -> None:
    def stopped() -> int:
        raise KeyboardInterrupt

    for told, said in (({"after_interrupt": "All is well."}, "stopped by Ctrl-C. All is well.\n"), ({}, "")):
        with job_end(Namespace(**told), needs_warehouse=False) as end:
            end.code = stopped()
        assert end.code == 130
        assert capsys.readouterr() == ("", said)
