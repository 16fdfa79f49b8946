"""From Kafka to an answer, every part a real process, and each of them killed while events flow."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from docs.notebooks.execute import executed
from tests import soak
from tests.crash.processes import PATIENCE, ROOT, kill, load_command, start, submit
from tests.docs.notebooks import folder_for
from tests.docs.pages import DOCS
from tests.query.answers import several
from tests.stream.as_of import Oracle
from tests.stream.kafka import Broker, Producer, client_jars
from tidemark import query, stream, warehouse

Job = tuple[subprocess.Popen[bytes], Path]  # its process, and its log
SCHEMA = "at timestamp, value double, name string"
PHIS = [i / 20 for i in range(21)]
BAD = ['{"at": "x", "value": 1}', "nothing", '{"value": "much"}']
MINUTES = float(os.environ.get("TIDEMARK_SOAK_MINUTES", "0"))  # `make soak` sets it
KILLS = 20 if MINUTES else 1  # of each job, at least; a start takes seconds
ABOUT = """Kafka, a streaming job, a load and a notebook that asks run side by side. The jobs are killed at
random moments. At the end every event was counted once, `verify` found nothing, and every answer on the way
was right for the batches that its `as_of` names."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    one = Broker(tmp_path_factory.mktemp("kafka"))
    yield one
    one.end()


class Reading:
    """A notebook at work, in a process of its own."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, folder: Path) -> None:
        self.process, self.log, self.folder = process, log, folder

    def end(self) -> dict[str, Any]:
        """Lets it come to its end; what it saw."""
        (self.folder / "stop").touch()
        assert self.process.wait(PATIENCE) == 0, self.log.read_text()
        cells = json.loads((self.folder / "read.ipynb").read_text())["cells"]
        seen: dict[str, Any] = json.loads("".join(cells[-1]["outputs"][0]["text"]))
        return seen


def event_of(record: str) -> dict[str, Any] | None:
    """The event of a record; None where a warehouse does not take it."""
    if record in BAD:
        return None
    event: dict[str, Any] = json.loads(record)
    return event if datetime.fromisoformat(event["at"]) < datetime.now(UTC) else None


class Flow:
    """Events on their way: a producer, and what it has sent."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path, topic: str) -> None:
        self.uri, self.folder, self.topic, self.broker = folder / "w", folder, topic, broker
        warehouse.create(spark, self.uri, ["value"], time="at", key="name", eps=0.05, kappa=3, schema=SCHEMA)
        broker.create(topic)
        self.producer = Producer(broker, topic)
        self.sent = 0  # events that count
        self.figures: Counter[str] = Counter()
        self.random = random.Random(topic)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.logs = 0

    def send(self, count: int) -> None:
        """Events of the last days and of two years ago; one in fifty is no event, one in a hundred early."""
        records = []
        for _ in range(count):
            drawn = self.random.random()
            if drawn < 0.02:
                records.append(self.random.choice(BAD))
                self.figures["malformed"] += 1
                continue
            late = self.random.random() < 0.5
            ahead = drawn > 0.99
            back = timedelta(minutes=10**6 if late else self.random.randrange(3000))
            at = datetime.now(UTC) + timedelta(days=30) if ahead else datetime.now(UTC) - back
            value = round(self.random.gauss(0, 100), 2)
            name = self.random.choice("aaab") + str(int(self.random.paretovariate(1)))
            records.append(json.dumps({"at": at.isoformat(), "value": value, "name": name}))
            if ahead:
                self.figures["from the future"] += 1
                continue
            self.figures["late by two years"] += late
            self.sent += 1
        self.producer.send(records)

    def _start(self, command: list[str]) -> Job:
        self.logs += 1
        log = self.folder / f"{self.logs}.log"
        self.processes.append(start(command, log))
        return self.processes[-1], log

    def stream(self) -> Job:
        job = submit(ROOT / "jobs" / "stream_events.py", "--warehouse", str(self.uri), "--source", "kafka")
        jars = ["--jars", ",".join(map(str, client_jars()))]
        where = ["--bootstrap", self.broker.address, "--topic", self.topic, "--max-per-batch", "2000"]
        return self._start([job[0], *jars, *job[1:], *where])

    def load(self) -> Job:
        """A load beside the stream: without Spark, and in a soak by spark-submit."""
        words = ["--warehouse", str(self.uri), "--from-stream"]
        return self._start(load_command(*words, spark=MINUTES > 0))

    def read(self) -> Reading:
        """A notebook that asks without pause."""
        shutil.copy(ROOT / "tests/stream/reading.ipynb", self.folder)
        execute = Path(sys.executable).parent / "jupyter-execute"
        jupyter = [str(execute), "--timeout=-1", "--output=read.ipynb", "reading.ipynb"]
        named = [f"TIDEMARK_WAREHOUSE={self.uri}", f"PYTHONPATH={ROOT}"]
        return Reading(*self._start(["env", *named, *jupyter]), self.folder)

    def say_that(self, log: Path, text: str) -> None:
        """Waits until the process has said so."""
        give_up = time.monotonic() + PATIENCE
        while text not in log.read_text():
            assert time.monotonic() < give_up, log.read_text()
            time.sleep(0.1)

    def replay(self) -> None:
        """Forgets that the newest batch has ended: what a crash just after its commit leaves."""
        checkpoint = self.uri / "checkpoints" / self.topic
        begun, ended = (
            {int(one.name) for one in (checkpoint / log).glob("[0-9]*")} for log in ("offsets", "commits")
        )
        newest = max(begun, default=-1)
        if newest in ended:
            (checkpoint / "commits" / str(newest)).unlink()
            (checkpoint / "commits" / f".{newest}.crc").unlink(missing_ok=True)
            self.figures["batches replayed"] += 1

    def duplicate(self, spark: SparkSession) -> None:
        """A whole batch comes a second time, from another process."""
        events = spark.read.format("delta").load(str(self.uri / "events"))
        found = events.where(f"_source = '{self.topic}'").selectExpr("max(_batch)").first()
        if found is None or not found[0]:
            return  # no batch yet, or one
        number = self.random.randrange(found[0])  # one below the newest, whose ledger row may still be due
        rows = events.where(f"_source = '{self.topic}' AND _batch = {number}").select("at", "value", "name")
        assert not stream.append(spark, self.uri, rows, source=self.topic, batch=number)
        self.figures["batches that came twice"] += 1

    def left(self) -> tuple[int, int]:
        """How many events are not there yet, and how many of the other records are not refused yet."""
        info = query.open(self.uri).info()
        rows = int(info["live_rows"]) + int(info["measures"]["value"]["rows"])
        return self.sent - rows, self.refused() - info["rejected"].get(self.topic, 0)

    def refused(self) -> int:
        """How many of the records that were sent are to be refused."""
        return self.figures["malformed"] + self.figures["from the future"]

    def until_all_is_taken(self, patience: float = PATIENCE) -> None:
        """Waits until what was sent is there, or was refused."""
        give_up = time.monotonic() + patience
        while max(left := self.left()) > 0:
            assert time.monotonic() < give_up, f"{left} left after {patience} s"
            ended = [process.args for process in self.processes if process.poll() not in (None, 0)]
            assert not ended, "\n".join(log.read_text()[-2000:] for log in self.folder.glob("*.log"))
            time.sleep(0.3)

    def check(self, reading: Reading) -> None:
        """Everything that the broker has is there once, and every answer on the way was right."""
        refused = self.refused()
        records = self.broker.read(self.topic)
        assert len(records) == self.sent + refused, "not all that was sent has reached the broker"
        events = [event for event in map(event_of, records) if event is not None]
        ordered = sorted(event["value"] for event in events)
        names = Counter(event["name"] for event in events)
        answers = query.open(self.uri).quantile(PHIS, mode="exact")
        assert len(ordered) == answers[0].N == self.sent
        expected = [ordered[max(1, -(-i * len(ordered) // 20)) - 1] for i in range(21)]
        assert [answer.value for answer in answers] == expected
        counted = several(query.open(self.uri).frequency(sorted(names)))
        assert all(one.lo <= names[one.value] <= one.hi for one in counted)
        counted = several(query.open(self.uri).frequency(sorted(names), mode="exact"))
        assert {one.value: one.count for one in counted} == names
        assert query.open(self.uri).info()["rejected"] == {self.topic: refused}
        report = warehouse.verify(self.uri)
        assert report.ok, str(report)
        seen = reading.end()
        assert seen["wrong"] == []
        assert seen["rows"] == len(ordered)
        oracle = Oracle(self.uri)
        assert [said for one in seen["answers"] if (said := oracle.wrong(one))] == []
        self.figures |= {
            "events taken": len(ordered),
            "answers on the way": seen["asked"],
            "answers held against their batches": len(seen["answers"]),
        }

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


def test_from_kafka_to_an_answer_and_faults_at_random_moments_count_every_event_once(
    flow: Flow, spark: SparkSession
) -> None:
    """A load and a notebook run beside; then jobs are killed, the broker restarted, batches brought again."""
    began = time.monotonic()
    reading = flow.read()
    attack(flow, spark, began, stream_while_a_load_runs(flow))
    take_the_rest(flow)
    loading, log = flow.load()
    assert loading.wait(PATIENCE) == 0, log.read_text()
    flow.check(reading)
    assert flow.figures["answers held against their batches"] > 10
    flow.figures["minutes"] = round((time.monotonic() - began) / 60)
    if MINUTES:
        soak.write_section("A stream under mixed faults", ABOUT, flow.figures)
    print(soak.table(flow.figures))


def stream_while_a_load_runs(flow: Flow) -> Job:
    """A job that streams on says what it did, and a load beside it makes one step."""
    flow.send(3000)
    streaming, log = flow.stream()
    flow.until_all_is_taken()
    flow.send(3000)
    loading, load_log = flow.load()
    for _ in range(10):
        flow.send(300)
        time.sleep(0.2)
    assert loading.wait(PATIENCE) == 0, load_log.read_text()
    flow.until_all_is_taken()
    said = log.read_text()
    assert re.search(r"batch 0: [\d,]+ rows, [\d,]+ rejected, .* rows/s, behind [\d,]+ records, live m", said)
    assert query.open(flow.uri).info()["steps"] == 1
    return streaming, log


def take_the_rest(flow: Flow) -> None:
    """A job takes what killed ones have left, which is much in a soak, and more; then it is asked to stop."""
    streaming, log = flow.stream()
    flow.send(300)  # in a batch after the one that is brought again
    flow.producer.end()
    flow.until_all_is_taken(max(PATIENCE, 60 * MINUTES))
    os.kill(streaming.pid, signal.SIGTERM)
    assert streaming.wait(PATIENCE) == 0, log.read_text()
    assert "stopped" in log.read_text()


def batches_in(log: Path) -> int:
    """How many batches a job has told."""
    return len(re.findall(r"^batch \d+: ", log.read_text(), re.MULTILINE))


def attack(flow: Flow, spark: SparkSession, began: float, first: Job) -> None:
    """Jobs killed, the broker restarted, batches replayed and brought twice, events late and malformed.

    first   the job that is killed first, which streams already
    """
    moments = random.Random(11)
    while flow.figures["kills of each job"] < KILLS or time.monotonic() - began < MINUTES * 60:
        streaming, log = flow.stream() if flow.figures["kills of each job"] else first
        before = batches_in(log)
        ahead = flow.load() if MINUTES else None  # a driver of Spark takes long to start
        flow.say_that(log, "streaming into")
        batches, more, taken = moments.randrange(4), moments.randrange(10), 0
        while more > 0 or taken < batches:
            assert streaming.poll() is None, log.read_text()
            flow.send(200)
            time.sleep(0.2)
            taken = batches_in(log) - before
            more -= taken >= batches
        if moments.random() < 0.5 or not MINUTES:
            flow.duplicate(spark)
        loading, _ = ahead or flow.load()
        time.sleep(moments.uniform(0, 1.5))
        for process in moments.sample([loading, streaming], 2):
            kill(process)
            flow.processes.remove(process)
            time.sleep(moments.uniform(0, 1))
        flow.figures["kills of each job"] += 1
        if flow.figures["kills of each job"] == 1:
            flow.broker.restart()
        if moments.random() < 0.5 or not MINUTES:
            flow.replay()


def test_the_stream_of_a_notebook_comes_from_kafka_where_a_broker_is_named(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_for(tmp_path, monkeypatch)
    march = spark.read.parquet(str(DOCS / "data/flights-20k.parquet")).where("month(time) = 3")
    broker.create("flights")
    producer = Producer(broker, "flights")
    producer.send([row.event for row in march.selectExpr("to_json(struct(*)) AS event").collect()])
    producer.send(['{"delay": "much"}'])
    producer.end()
    monkeypatch.setenv("TIDEMARK_KAFKA", f"{broker.address}/flights")
    jars = ",".join(map(str, client_jars()))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--jars {jars} pyspark-shell")
    executed(DOCS / "notebooks/nightly_and_stream.ipynb", folder)
    uri = folder.parents[1] / "build/notebooks/nightly_and_stream/flights"
    assert query.open(uri).info()["rejected"] == {"live": 1}
    assert query.open(uri).quantile(0.5).N == 20_000


def changes_of(draw: random.Random, rows: dict[int, tuple[str, float]], count: int) -> list[str]:
    """Lines of a keyed producer: rows that come, change and go, as Debezium writes them; `rows` follow."""
    lines = []
    for _ in range(count):
        number = draw.randrange(20)
        before = rows.get(number)
        after = None if before is not None and draw.random() < 0.3 else (draw.choice("abc"), draw.random())
        images = [one and {"id": number, "name": one[0], "amount": one[1]} for one in (before, after)]
        op = "c" if before is None else "d" if after is None else "u"
        change = {"payload": {"op": op, "before": images[0], "after": images[1]}}
        lines.append(f"{number}|{json.dumps(change)}")
        if after is None:
            lines.append(f"{number}|NULL")  # so that Kafka may forget the key
            del rows[number]
        else:
            rows[number] = after
    return lines


def test_changes_of_a_topic_are_corrections_also_when_the_job_is_killed(
    spark: SparkSession, broker: Broker, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    uri, log = tmp_path / "w", tmp_path / "job.log"
    warehouse.create(spark, uri, ["amount"], key="name", schema="id bigint, name string, amount double")
    broker.create("orders")
    producer, draw, rows = Producer(broker, "orders", keyed=True), random.Random(7), dict[int, Any]()
    request.addfinalizer(producer.kill)
    producer.send(changes_of(draw, rows, 60))
    job = submit(ROOT / "jobs" / "stream_events.py", "--warehouse", str(uri), "--source", "kafka")
    jars = ["--jars", ",".join(map(str, client_jars()))]
    where = ["--bootstrap", broker.address, "--topic", "orders", "--changes", "--max-per-batch", "30"]
    process = start([job[0], *jars, *job[1:], *where], log)
    give_up = time.monotonic() + PATIENCE
    while "batch 0: " not in log.read_text():
        assert time.monotonic() < give_up, log.read_text()
        time.sleep(0.1)
    kill(process)
    producer.send(changes_of(draw, rows, 40))
    producer.end()
    process = start([job[0], *jars, *job[1:], *where, "--once"], log)
    assert process.wait(PATIENCE) == 0, log.read_text()
    found = query.open(uri).sql("SELECT id, name, amount FROM events ORDER BY id").fetchall()
    assert found == [(number, *row) for number, row in sorted(rows.items())]
    assert warehouse.verify(uri).ok
