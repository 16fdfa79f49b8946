"""Spark Connect: a real server, and a client in a process of its own that has no Java."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.jobs.said import environment
from tests.query.sqlworld import ROOT, Rows, make

HISTORY, LIVE, BOTH = Rows.of(1), Rows.of(2), Rows.of(1, 2)

CLIENT = """
import json, sys, time
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tidemark import query
end = time.monotonic() + 120
while True:
    try:
        spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
        spark.sql("SELECT 1").collect()
        break
    except PySparkException:  # it is not listening yet
        if time.monotonic() > end:
            raise
        time.sleep(0.5)
query.register_views(spark, sys.argv[2], "flights")
spark.conf.set("spark.tidemark.again", sys.argv[2])
names = query.register_views(spark)
def ask(text):
    return [list(row) for row in spark.sql(text).collect()]
found = {"names": names}
found["quantile"] = ask("SELECT value, n, m, window.start FROM flights_quantile(0.99, mode => 'exact')")
found["lateral"] = ask("SELECT q.value FROM VALUES (0.5), (0.9) t(p), LATERAL again_quantile(p, 'exact') q")
found["key"] = ask("SELECT `count` FROM flights_frequency('ATL', mode => 'exact')")
for view in ("events", "history", "live", "summary"):
    found[view] = ask(f"SELECT count(*) FROM flights_{view}")[0][0]
try:
    ask("SELECT * FROM flights_quantile(1.5)")
except PySparkException as error:
    found["error"] = str(error)
try:
    query.register_views(spark, sys.argv[2] + "_not")
except query.NotAWarehouse as error:
    found["nothing there"] = str(error)
print(json.dumps(found))
spark.stop()
"""


@pytest.fixture
def address(spark: SparkSession) -> Iterator[str]:
    """Spark's own Connect server, in the Java of the session; its sessions have the same settings."""
    java: Any = spark._jvm
    conf = java.org.apache.spark.SparkEnv.get().conf()
    conf.set("spark.connect.grpc.binding.address", "127.0.0.1")
    conf.set("spark.connect.grpc.binding.port", "0")
    service = getattr(getattr(java.org.apache.spark.sql.connect.service, "SparkConnectService$"), "MODULE$")
    service.start(spark.sparkContext._jsc.sc())
    yield f"sc://127.0.0.1:{service.server().getPort()}"
    none = getattr(getattr(java.scala, "None$"), "MODULE$")
    service.stop(none, none)


def test_a_connect_session_has_functions_and_views(address: str, tmp_path: Path) -> None:
    make(tmp_path / "w")
    line = [sys.executable, "-c", CLIENT, address, str(tmp_path / "w")]
    without_java = {name: value for name, value in environment().items() if name != "JAVA_HOME"}
    done = subprocess.run(
        line, cwd=ROOT, env=without_java, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    truth = BOTH.oracle()
    assert found["names"] == ["again"]
    assert found["quantile"] == [[truth.quantile(0.99), HISTORY.oracle().n, LIVE.oracle().n, None]]
    assert sorted(found["lateral"]) == sorted([truth.quantile(phi)] for phi in (0.5, 0.9))
    assert found["key"] == [[BOTH.keys()["ATL"]]]
    counts = {"events": len(BOTH), "history": len(HISTORY), "live": len(LIVE), "summary": 10}
    assert {name: found[name] for name in counts} == counts
    assert "InputError: not a quantile: got phi = 1.5; expected 0 <= phi <= 1" in found["error"]
    assert "is not a tidemark warehouse" in found["nothing there"]
