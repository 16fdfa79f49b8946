"""On a cluster of two workers, with the code from the zip and the warehouse in an object store.

The lines are those of the guide. The answers are those of a local warehouse of the same rows, and of the
sorted rows themselves.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.crash.processes import kill
from tests.docs.pages import DOCS, blocks
from tests.jobs.cluster import Cluster, cluster, succeeded, wait_for
from tests.jobs.conftest import FLIGHTS, ROOT
from tests.jobs.installed import Installed, bare
from tests.stores.server import Server, running
from tests.warehouse.disk import rows_of
from tidemark import query, stream, warehouse
from tidemark.jobs import load_batch

pytestmark = pytest.mark.spark

_, EXPORT, *LINES = (
    next(block.text for block in blocks(DOCS / "guides" / "clusters.md") if block.kind == "shell")
    .replace("\\\n", "")
    .splitlines()
)
JANUARY, FEBRUARY = LINES[:2]
KAPPA = 2
PARQUET = re.compile(r"/killed/events/.*\.parquet")

# Tells where the code comes from in the driver and in the tasks of both workers, then runs jobs one after the
# other, as spark-submit does.
JOBS = """
import json, os, runpy, sys, time
from pathlib import Path
from tidemark.jobs import load_batch
from tidemark.jobs.spark.session import spark_session
spark = spark_session("where")
def where(_):
    from tidemark import warehouse
    time.sleep(0.5)
    return [(os.environ.get("SPARK_EXECUTOR_ID") or os.getcwd(), warehouse.__file__)]
tasks = spark.sparkContext.parallelize(range(4), 4).mapPartitions(where).collect()
print(json.dumps({"driver": load_batch.__file__, "tasks": tasks}), flush=True)
for words in json.loads(sys.argv[1]):
    sys.argv, sys.path[0] = words, str(Path(words[0]).parent)
    try:
        runpy.run_path(words[0], run_name="__main__")
    except SystemExit as ended:
        assert not ended.code, (words, ended.code)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as started:
        yield started


@pytest.fixture(scope="module")
def place(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running cluster; in its folder are the zip, the jobs and the inputs of the guide's lines."""
    folder = tmp_path_factory.mktemp("cluster")
    python = bare(folder / "bare")
    probe = [str(python), "-c", "from tidemark import warehouse"]
    assert subprocess.run(probe, cwd=folder, env={}, capture_output=True, check=False).returncode != 0
    (folder / "dist").symlink_to(installed.zipped.parent)
    (folder / "jobs").symlink_to(ROOT / "jobs")
    data = folder / "data"
    (data / "incoming").mkdir(parents=True)
    pq.write_table(month(1), data / "january.parquet")
    pq.write_table(month(2), data / "february.parquet")
    for i in range(2):
        rows = month(3).slice(i * 1000, 1000)
        (data / "incoming" / f"{i}.json").write_text(as_lines(rows))
    with cluster(folder / "spark", 2, python) as started:
        yield started


def month(number: int) -> pa.Table:
    rows = pq.read_table(FLIGHTS)
    return rows.filter(pc.equal(pc.month(rows.column("time")), number))


def as_lines(rows: pa.Table) -> str:
    """JSON lines."""
    return "".join(
        json.dumps({**row, "time": f"{row['time'].replace(tzinfo=None).isoformat()}Z"}) + "\n"
        for row in rows.to_pylist()
    )


def here(line: str, place: Cluster, uri: str = "s3://warehouses/flights") -> str:
    """A line of the guide, for this cluster and this folder."""
    line = line.replace("spark://master:7077", place.address).replace("s3://warehouses/flights", uri)
    for name in ("dist/", "jobs/", "/data/"):
        line = line.replace(f" {name}", f" {place.folder.parent}/{name.strip('/')}/")
    return line


def locally(line: str) -> None:
    """A line that loads, by the local engine of this process."""
    assert load_batch.main([*shlex.split(line.split("load_batch.py")[1]), "--engine", "local"]) == 0


def check(wh: query.Warehouse, rows: pa.Table) -> None:
    """AssertionError unless the warehouse has exactly these rows, by its exact answers."""
    delays = sorted(rows.column("delay").drop_null().to_pylist())
    for phi in (0.01, 0.5, 0.99):
        answer = wh.quantile(phi, mode="exact")
        assert (answer.N, answer.value) == (len(delays), delays[math.ceil(phi * len(delays)) - 1])
    for origin, count in Counter(rows.column("origin").to_pylist()).most_common(20):
        assert wh.frequency(origin, mode="exact").count == count


def run_all(lines: list[str], place: Cluster, **variables: str) -> None:
    """Lines that differ in their jobs alone, by one driver, whose start takes longer than most of them.

    AssertionError unless all is done by the zip's code, in the driver and on both workers.
    """
    (place.folder / "jobs.py").write_text(JOBS)
    cut = [re.split(r" (?=\S+/jobs/\w+\.py )", line) for line in lines]
    (submit,) = {submit for submit, _ in cut}
    jobs = shlex.quote(json.dumps([shlex.split(job) for _, job in cut]))
    told = place.run(f"{submit} jobs.py {jobs}", **variables).splitlines()[0]
    said = json.loads(told)
    files = [said["driver"], *(file for _, file in said["tasks"])]
    assert all(".zip/tidemark/" in file for file in files), files
    assert len({worker for worker, _ in said["tasks"]}) == 2


def test_the_lines_of_the_guide_run_the_code_of_the_zip_and_answer_as_a_local_warehouse_does(
    place: Cluster, server: Server, tmp_path: Path
) -> None:
    """Several loads, so that a level overflows; a stream; a load of what streamed; maintenance."""
    server.set()
    run_all([here(line, place) for line in LINES], place, **server.options)
    january, february, march = month(1), month(2), month(3).slice(0, 2000)
    far = query.open("s3://warehouses/flights", server.options)
    check(far, pa.concat_tables([january, february, march]))
    assert warehouse.verify("s3://warehouses/flights", storage_options=server.options).ok

    near_uri = tmp_path / "near"
    for line in (JANUARY, FEBRUARY):
        locally(here(line, place, str(near_uri)))
    stream.append(None, near_uri, march, source="incoming", batch=0)
    warehouse.load(None, near_uri)
    near = query.open(near_uri)
    phis = [i / 100 for i in range(101)]
    for last in (None, "14d"):
        answers = [wh.quantile(phis, last=last) for wh in (far, near)]
        values = [[(one.N, one.value, one.error_bound) for one in each] for each in answers]
        assert values[0] == values[1]
    steps = rows_of(near_uri, "steps").num_rows
    assert far.info()["steps"] == near.info()["steps"]
    assert steps > KAPPA + 1, "no level has overflowed"


def test_a_worker_that_is_killed_in_the_middle_of_a_load_costs_no_row_and_counts_none_twice(
    place: Cluster, server: Server
) -> None:
    """The worker and its executor are gone; the other one does their work."""
    uri = "s3://warehouses/killed"
    server.set(latency=0.05)
    loading = place.start(here(JANUARY, place, uri), **server.options)
    while not [one for one in server.requests() if one.method == "PUT" and PARQUET.search(one.path)]:
        assert loading.poll() is None, succeeded(loading)
        time.sleep(0.1)
    kill(place.workers[0])
    assert loading.poll() is None, "it was over before"
    server.set()
    loading.communicate(timeout=240)
    if loading.returncode:
        place.run(here(JANUARY, place, uri), **server.options)
    wait_for(place.folder / "master" / "log", "Removing worker")
    wh = query.open(uri, server.options)
    check(wh, month(1))
    assert warehouse.verify(uri, storage_options=server.options).ok
    again = warehouse.load(None, uri, month(1), "2001-01", storage_options=server.options)
    assert (again.outcome, wh.info()["steps"]) == ("known", 1)
