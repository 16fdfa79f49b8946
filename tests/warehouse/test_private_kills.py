"""A load that is killed leaves no name behind: in no table, no temporary file and no output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.warehouse.private_in_spark import texts
from tests.warehouse.private_killed import TINY, TOKENS
from tests.warehouse.private_world import NAMES, SCHEMA, rows, secret_in, traces
from tidemark import query, warehouse
from tidemark.warehouse.private import secrets

ROOT = Path(__file__).resolve().parents[2]
POINTS = (TOKENS, "appended", "sorted", "never", "merge sorted")


def test_loads_that_are_killed_leave_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_known", {})
    monkeypatch.setattr(secrets, "_read", {})
    uri, secret, temporary = tmp_path / "w", secret_in(tmp_path / "secret"), tmp_path / "temporary"
    warehouse.create(
        None, uri, ["delay"], keys=["user", "card"], groups=["user"], time="time", kappa=2, schema=SCHEMA,
        index=["user"], private=["user", "card"], secret_file=secret,
    )  # fmt: skip
    temporary.mkdir()
    env = {**os.environ, "TMPDIR": str(temporary), "TIDEMARK_SECRET_FILE": str(secret)}
    for number, point in enumerate(POINTS):
        given = [sys.executable, "-m", "tests.warehouse.private_killed", str(uri), point, str(1000 * number)]
        done = subprocess.run(given, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == (0 if point == "never" else -signal.SIGKILL), done.stderr
        assert traces(uri, [done.stdout + done.stderr]) == []
        assert traces(temporary, []) == []
    for number in range(len(POINTS)):  # those that were killed before they were there
        warehouse.load(None, uri, rows(1000 * number, 400), f"b{1000 * number}", tuning=TINY)
    assert warehouse.verify(uri).ok
    users = [name for number in range(len(POINTS)) for name in rows(1000 * number, 400)["user"].to_pylist()]
    wh = query.open(uri)
    assert [wh.frequency(name, key="user", mode="exact").count for name in NAMES] == [
        users.count(name) for name in NAMES
    ]


@pytest.mark.spark
@pytest.mark.slow
def test_what_spark_writes_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log of events, checkpoints, shuffles, spills, temporary files; and errors with their causes."""
    monkeypatch.setattr(secrets, "_known", {})
    monkeypatch.setattr(secrets, "_read", {})
    uri, given, folder = tmp_path / "w", tmp_path / "given", tmp_path / "spark"
    (given / "text").mkdir(parents=True)
    folder.mkdir()
    secret = secret_in(tmp_path / "secret")
    warehouse.create(
        None, uri, ["delay"], keys=["user", "card"], groups=["user"], time="time", kappa=2, schema=SCHEMA,
        index=["user"], private=["user", "card"], secret_file=secret,
    )  # fmt: skip
    pq.write_table(rows(0, 400), given / "rows.parquet")
    (given / "text" / "1.txt").write_text(texts(rows(1000, 200)))
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY")}
    env |= {"TMPDIR": str(folder), "TIDEMARK_SECRET_FILE": str(secret), "PYSPARK_PYTHON": sys.executable}
    call = [sys.executable, "-m", "tests.warehouse.private_in_spark", *map(str, (uri, given, folder))]
    done = subprocess.run(
        call, env=env, capture_output=True, text=True, check=False, start_new_session=True, cwd=ROOT
    )
    said = done.stdout + done.stderr
    assert done.returncode == -signal.SIGKILL, said
    assert "Traceback" in said
    assert traces(uri, [said]) == []
    assert traces(folder, []) == []
    assert "plain.txt" in traces(given, [])  # the search finds what a plain warehouse says
    log = b"".join(path.read_bytes() for path in (folder / "events of Spark").rglob("*") if path.is_file())
    assert b"SparkListenerTaskEnd" in log
    wh = query.open(uri)
    names = [*rows(0, 400)["user"].to_pylist() * 2, *rows(1000, 200)["user"].to_pylist()]
    gone = rows(0, 2)["user"].to_pylist() * 2
    assert [wh.frequency(name, key="user", mode="exact").count for name in NAMES] == [
        names.count(name) - gone.count(name) for name in NAMES
    ]
