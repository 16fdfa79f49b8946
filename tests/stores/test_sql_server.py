"""`tidemark sql-server` on a warehouse in the store: its answers, and no secret in what anybody sees."""

from __future__ import annotations

import math
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.jobs.served import COMMAND, Driver, serving, told
from tests.stores.conftest import Place
from tests.stores.gate import Fault
from tests.stores.rows import HOW, rows
from tidemark import stream, warehouse

SHOWING = (
    "SHOW CREATE TABLE stored_events",
    "DESCRIBE TABLE EXTENDED stored_events",
    "EXPLAIN EXTENDED SELECT * FROM stored_events",
    "EXPLAIN FORMATTED SELECT * FROM stored_quantile(0.5)",
)


@pytest.mark.slow
def test_clients_are_answered_and_see_no_secret(
    spark: SparkSession, place: Place, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = f"secret{uuid.uuid4().hex}"
    options = {**place.options, "AWS_SECRET_ACCESS_KEY": secret}
    how: dict[str, Any] = {"storage_options": place.options}
    warehouse.create(None, place.uri, ["ms"], **HOW, **how)
    warehouse.load(None, place.uri, rows(0), "night-0", **how)
    stream.append(None, place.uri, rows(1), source="web", batch=0, **how)
    file = tmp_path / "store.txt"
    file.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
    line = [*COMMAND, "-w", f"stored={place.uri}", "--storage-options", file, "--json"]
    driver = Driver(spark.sparkContext._jvm)
    seen: list[object] = []
    with serving(tmp_path, line) as server:
        ask = driver.connect(server.url)
        ms = sorted([*rows(0)["ms"].to_pylist(), *rows(1)["ms"].to_pylist()])
        for phi in (0.1, 0.99):
            found = ask(f"SELECT value, n + m FROM stored_quantile({phi}D, mode => 'exact')")
            assert found == [(str(ms[math.ceil(phi * len(ms)) - 1]), str(len(ms)))]
        pages = Counter([*rows(0)["page"].to_pylist(), *rows(1)["page"].to_pylist()])
        assert ask("SELECT `count` FROM stored_frequency('/1', mode => 'exact')") == [(str(pages["/1"]),)]
        counted = ask("SELECT page, count(*) FROM stored_events GROUP BY page")
        assert sorted(counted) == sorted((page, str(count)) for page, count in pages.items())
        # A batch that comes while the server runs.
        stream.append(None, place.uri, rows(2), source="web", batch=1, **how)
        assert ask("SELECT n + m FROM stored_quantile(0.5D)") == [(str(len(ms) + rows(2).num_rows),)]
        seen += [server.url, *(ask(statement) for statement in SHOWING)]
        place.server.set(Fault("403"))
        with pytest.raises(Exception, match="StoreUnavailable") as failed:
            ask("SELECT value FROM stored_quantile(0.5D, mode => 'exact')")
        place.server.set()
        seen += [str(failed.value), told(failed.value)]
        driver.close()
    seen += capfd.readouterr()
    assert all(secret not in str(text) for text in seen)
    assert any("stored_events" in str(text) for text in seen)  # there was something to see
