"""The two jobs that look after a warehouse: what they print and how they exit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tidemark import warehouse
from tidemark.jobs import maintain, verify


@pytest.fixture(scope="module")
def uri(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("jobs") / "w"
    warehouse.create(spark, path, ["x"], eps=0.1, schema="x int")
    warehouse.load(spark, path, spark.createDataFrame([(1,), (2,)], "x int"), "b")
    return path


def test_maintain_says_what_it_did(uri: Path, capsys: pytest.CaptureFixture[str]) -> None:
    orphan = uri / "runs/x/orphan.parquet"
    orphan.write_bytes(b"PAR1")
    assert maintain.main(["--warehouse", str(uri)]) == 0
    assert orphan.exists()
    assert maintain.main(["--warehouse", str(uri), "--grace", "0 s"]) == 0
    said = capsys.readouterr().out
    assert "runs/x: 1 files deleted" in said
    assert "ledger rows expired: 0; marks expired: 0" in said
    assert not orphan.exists()


def test_verify_says_that_all_holds_and_exits_with_0(uri: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify.main(["--warehouse", str(uri)]) == 0
    said = capsys.readouterr().out
    assert "FAIL" not in said
    assert "2 rows in history, 0 live" in said


def test_verify_exits_with_1_where_an_invariant_does_not_hold(
    uri: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs last: it damages the shared warehouse."""
    next((uri / "runs/x").glob("run=*/*.parquet")).unlink()
    assert verify.main(["--warehouse", str(uri)]) == 1
    assert "FAIL" in capsys.readouterr().out


@pytest.mark.parametrize("job", [maintain.main, verify.main])
@pytest.mark.usefixtures("spark")
def test_both_exit_with_2_where_there_is_no_warehouse_or_no_sense(
    job: Callable[[list[str]], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert job(["--warehouse", str(tmp_path)]) == 2
    assert "not a tidemark warehouse" in capsys.readouterr().err
    for argv in ([], ["--warehouse", "w", "--nonsense"]):
        with pytest.raises(SystemExit) as stopped:
            job(argv)
        assert stopped.value.code == 2
    assert not list(tmp_path.iterdir())


def test_a_grace_that_is_no_duration_is_bad_usage(uri: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert maintain.main(["--warehouse", str(uri), "--grace", "0soon"]) == 2
    assert "0soon" in capsys.readouterr().err
