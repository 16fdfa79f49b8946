"""A load on a cluster of two workers, with the code from the zip alone, answers as a local load does."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.jobs.cluster import cluster, submit
from tests.jobs.conftest import FLIGHTS
from tests.jobs.installed import Installed
from tests.warehouse.disk import rows_of
from tidemark import query, warehouse
from tidemark.jobs import load_batch

OPTIONS = ["--measure", "delay", "--time", "time", "--eps", "0.01", "--kappa", "2"]

# The job, and where its code came from in the driver and in the tasks of both workers.
ENTRY = """
import json, os, sys
from tidemark.jobs import load_batch
code = load_batch.main(sys.argv[2:])
from tidemark.jobs.spark.session import spark_session
spark = spark_session("where")
def where(_):
    import time
    from tidemark import warehouse
    time.sleep(0.5)
    return [(os.environ.get("SPARK_EXECUTOR_ID") or os.getcwd(), warehouse.__file__)]
tasks = spark.sparkContext.parallelize(range(4), 4).mapPartitions(where).collect()
json.dump({"driver": load_batch.__file__, "tasks": tasks}, open(sys.argv[1], "w"))
sys.exit(code)
"""


def bare(installed: Installed, folder: Path) -> Path:
    """An environment like the installed one, without tidemark: only the zip can bring it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (theirs,) = installed.folder.glob("lib/python3*/site-packages/others.pth")
    (site,) = folder.glob("lib/python3*/site-packages")
    shutil.copy(theirs, site)
    return folder / "bin" / "python"


@pytest.mark.usefixtures("spark")
def test_two_workers_load_from_the_zip_as_a_local_load_does(installed: Installed, tmp_path: Path) -> None:
    rows = pq.read_table(FLIGHTS)
    pq.write_table(_repeated(rows), tmp_path / "in.parquet")
    python = bare(installed, tmp_path / "bare")
    probe = subprocess.run(
        [python, "-c", "from tidemark import warehouse"],
        cwd=tmp_path,
        env={},
        capture_output=True,
        check=False,
    )
    assert probe.returncode != 0
    (tmp_path / "entry.py").write_text(ENTRY)
    job = ["--input", tmp_path / "in.parquet", "--batch", "b", "--batch-every", "45 days", *OPTIONS]
    conf = ["--conf", "spark.executor.memory=512m", "--conf", "spark.sql.shuffle.partitions=2"]
    told = tmp_path / "told.json"
    with cluster(tmp_path / "cluster", workers=2) as address:
        line = [
            *conf,
            "--py-files",
            installed.zipped,
            tmp_path / "entry.py",
            told,
            "--warehouse",
            tmp_path / "far",
        ]
        done = submit(address, python, *line, *job)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count(": loaded") == 2
    where = json.loads(told.read_text())
    files = [where["driver"], *(file for _, file in where["tasks"])]
    assert all(f"{installed.zipped.name}/" in file for file in files), files
    assert len({worker for worker, _ in where["tasks"]}) == 2
    assert load_batch.main(list(map(str, ["--warehouse", tmp_path / "near", *job]))) == 0
    far, near = query.open(tmp_path / "far"), query.open(tmp_path / "near")
    assert warehouse.verify(tmp_path / "far").ok
    phis = [i / 100 for i in range(101)]
    for last in (None, "14d"):
        assert _values(far, phis, last) == _values(near, phis, last)
    assert rows_of(tmp_path / "far", "steps").num_rows == rows_of(tmp_path / "near", "steps").num_rows


def _values(wh: query.Warehouse, phis: list[float], last: str | None) -> list[object]:
    answers = wh.quantile(phis, last=last)
    return [answers[0].N, *((one.value, one.error_bound) for one in answers)]


def _repeated(rows: pa.Table) -> pa.Table:
    """The flights three times, so that each worker has a share."""
    more = [rows.set_column(1, "delay", pc.add(rows.column("delay"), shift)) for shift in (0, 1, 2)]
    return pa.concat_tables(more).cast(rows.schema)
