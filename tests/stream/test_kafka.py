"""From Kafka to an answer, every part a real process, and each of them killed while events flow."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import query
import warehouse
from tests.crash.processes import PATIENCE, ROOT, kill, start, submit
from tests.stream.kafka import Broker, Producer, client_jars

SCHEMA = "at timestamp, value double, name string"
PHIS = [i / 20 for i in range(21)]
BAD = ['{"at": "x", "value": 1}', "nothing", '{"value": "much"}']
KILLS = max(2, int(os.environ.get("TIDEMARK_SOAK_KILLS", "20")) // 10)  # of each job; a start takes seconds


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    one = Broker(tmp_path_factory.mktemp("kafka"))
    yield one
    one.end()


class Flow:
    """Events on their way: a producer, and what it has sent."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path, topic: str) -> None:
        self.uri, self.folder, self.topic, self.broker = folder / "w", folder, topic, broker
        warehouse.create(spark, self.uri, ["value"], time="at", key="name", eps=0.05, kappa=3, schema=SCHEMA)
        self.producer = Producer(broker, topic)
        self.sent: list[float] = []
        self.bad = 0
        self.random = random.Random(topic)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.logs = 0

    def send(self, count: int) -> None:
        """Events of the last days, a few long ago, one in fifty no event at all."""
        records = []
        for _ in range(count):
            if self.random.random() < 0.02:
                records.append(
                    self.random.choice(['{"at": "x", "value": 1}', "nothing", '{"value": "much"}'])
                )
                self.bad += 1
                continue
            value = round(self.random.gauss(0, 100), 2)
            back = timedelta(minutes=self.random.choice([self.random.randrange(3000), 10**6]))
            at = datetime.now(UTC) - back
            records.append(json.dumps({"at": at.isoformat(), "value": value, "name": "a"}))
            self.sent.append(value)
        self.producer.send(records)

    def _start(self, command: list[str]) -> tuple[subprocess.Popen[bytes], Path]:
        self.logs += 1
        log = self.folder / f"{self.logs}.log"
        self.processes.append(start(command, log))
        return self.processes[-1], log

    def stream(self, *options: str) -> tuple[subprocess.Popen[bytes], Path]:
        job = submit(ROOT / "jobs" / "stream_events.py", "--warehouse", str(self.uri), "--source", "kafka")
        jars = ["--jars", ",".join(map(str, client_jars()))]
        where = ["--bootstrap", self.broker.address, "--topic", self.topic, "--max-per-batch", "2000"]
        return self._start([job[0], *jars, *job[1:], *where, *options])

    def load(self) -> tuple[subprocess.Popen[bytes], Path]:
        script = ROOT / "jobs" / "load_batch.py"
        return self._start(submit(script, "--warehouse", str(self.uri), "--from-stream"))

    def watch(self) -> tuple[subprocess.Popen[bytes], Path]:
        return self._start([sys.executable, str(ROOT / "tests/stream/watcher.py"), str(self.uri)])

    def rows(self) -> int:
        info = query.open(self.uri).info()
        return int(info["live_rows"]) + int(info["measures"]["value"]["rows"])

    def until(self, rows: int) -> None:
        give_up = time.monotonic() + PATIENCE
        while self.rows() < rows:
            assert time.monotonic() < give_up, f"{self.rows()} of {rows} rows after {PATIENCE} s"
            ended = [process.args for process in self.processes if process.poll() not in (None, 0)]
            assert not ended, "\n".join(log.read_text()[-2000:] for log in self.folder.glob("*.log"))
            time.sleep(0.3)

    def check(self, watcher: tuple[subprocess.Popen[bytes], Path]) -> dict[str, Any]:
        """Everything that was sent is there once, and the reader saw nothing wrong."""
        answers = query.open(self.uri).quantile(PHIS, mode="exact")
        ordered = sorted(self.sent)
        assert len(ordered) == answers[0].N
        expected = [ordered[max(1, -(-i * len(ordered) // 20)) - 1] for i in range(21)]
        assert [answer.value for answer in answers] == expected
        assert query.open(self.uri).info()["rejected"] == {self.topic: self.bad}
        report = warehouse.verify(self.uri)
        assert report.ok, str(report)
        process, log = watcher
        process.terminate()
        assert process.wait(PATIENCE) == 0, log.read_text()
        seen: dict[str, Any] = json.loads(log.read_text().splitlines()[-1])
        assert seen["errors"] == []
        assert seen["rows"] == len(ordered)
        return seen

    def end(self) -> None:
        self.producer.kill()
        for process in self.processes:
            if process.poll() is None:
                kill(process)


@pytest.fixture
def flow(
    spark: SparkSession, broker: Broker, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Flow]:
    one = Flow(spark, broker, tmp_path, re.sub(r"\W", "-", request.node.name)[:60])
    yield one
    one.end()


def test_from_kafka_to_an_answer_while_a_load_and_a_reader_run_beside(flow: Flow) -> None:
    flow.send(3000)
    streaming, log = flow.stream()
    watcher = flow.watch()
    flow.until(len(flow.sent))
    flow.send(3000)
    loading, load_log = flow.load()
    for _ in range(10):
        flow.send(300)
        time.sleep(0.2)
    assert loading.wait(PATIENCE) == 0, load_log.read_text()
    flow.producer.end()
    flow.until(len(flow.sent))
    os.kill(streaming.pid, signal.SIGTERM)
    assert streaming.wait(PATIENCE) == 0, log.read_text()
    said = log.read_text()
    assert re.search(r"batch 0: [\d,]+ rows, [\d,]+ rejected, .* rows/s, behind [\d,]+ records, live m", said)
    assert "stopped" in said
    assert flow.check(watcher)["asked"] > 10
    assert query.open(flow.uri).info()["steps"] == 1


def test_jobs_killed_at_random_moments_and_a_broker_restarted_count_every_event_once(flow: Flow) -> None:
    moments = random.Random(11)
    watcher = flow.watch()
    for turn in range(KILLS):
        streaming, _ = flow.stream()
        loading, _ = flow.load()
        for _ in range(moments.randrange(25, 60)):
            flow.send(200)
            time.sleep(0.2)
        kill(loading)
        time.sleep(moments.uniform(0, 1))
        kill(streaming)
        if turn == 0:
            flow.broker.restart()
    flow.producer.end()
    finishing, log = flow.stream("--once")
    assert finishing.wait(PATIENCE) == 0, log.read_text()
    loading, log = flow.load()
    assert loading.wait(PATIENCE) == 0, log.read_text()
    flow.check(watcher)
