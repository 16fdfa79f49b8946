"""A real Kafka: its jars, a broker on free ports of this machine, and a producer. Each a process of its own.

The jars come through Spark's own resolver, once, into the environment. What is pinned here is for tests;
users name one coordinate (see the README).
"""

from __future__ import annotations

import base64
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable
from pathlib import Path

import pyspark

from tests.crash.processes import PATIENCE, kill, start
from tests.java import SHORT_LIVED, java_home
from tests.once import one_process

BROKER = ["org.apache.kafka:kafka_2.13:4.1.0", "org.apache.kafka:kafka-tools:4.1.0"]
PROVIDER = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"
# Spark's connector asks for a token provider of its own version, which not every registry has.
CLIENT = [
    (["org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"], [PROVIDER]),
    ([f"{PROVIDER}:4.0.0"], []),
]
HOME = Path(sys.prefix) / "kafka"
SPARK_HOME = Path(pyspark.__file__).parent
_SPARK_HAS = ["org.apache.hadoop:*", "org.slf4j:*", "org.lz4:*", "org.xerial.snappy:*", "org.scala-lang:*"]


def broker_classes() -> str:
    """The class path of the broker and its tools; Scala, which the resolver leaves out, is Spark's."""
    (scala,) = (SPARK_HOME / "jars").glob("scala-library-2.13*.jar")
    return f"{resolve('broker', BROKER, [])}/*:{scala}"


def client_jars() -> list[Path]:
    """What Spark lacks to read Kafka."""
    found = [
        jar
        for i, (packages, excluded) in enumerate(CLIENT)
        for jar in sorted(resolve(f"client-{i}", packages, [*_SPARK_HAS, *excluded]).glob("*.jar"))
    ]
    return list({jar.name: jar for jar in found}.values())


def resolve(name: str, packages: list[str], excluded: list[str]) -> Path:
    """The folder with the jars of the packages and of what they need; fetched where it is not there yet."""
    folder, done = HOME / name / "jars", HOME / name / "done"
    HOME.mkdir(exist_ok=True)
    with one_process(HOME / f"{name}.lock"):
        if not done.exists():
            shutil.rmtree(HOME / name, ignore_errors=True)
            _fetch(HOME / name, packages, excluded)
            done.touch()
    return folder


def _fetch(folder: Path, packages: list[str], excluded: list[str]) -> None:
    nothing = folder / "nothing.py"
    folder.mkdir()
    nothing.write_text("")
    command = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[1]"]
    command += ["--packages", ",".join(packages), "--conf", f"spark.jars.ivy={folder}"]
    command += ["--exclude-packages", ",".join(excluded)] if excluded else []
    subprocess.run([*command, str(nothing)], check=True, capture_output=True, timeout=PATIENCE)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def java() -> list[str]:
    """The command of Java, as far as its options."""
    return [f"{java_home()}/bin/java", *SHORT_LIVED.split()]


class Broker:
    """One broker, which is its own controller."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self._controller = folder, free_port(), free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.classes = broker_classes()
        self._properties = folder / "server.properties"
        self._properties.write_text(
            f"""
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{self._controller}
listeners=PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{self._controller}
advertised.listeners=PLAINTEXT://{self.address}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder / "log"}
num.partitions=3
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""
        )
        settings = ["-c", str(self._properties)]
        self._tool("kafka.tools.StorageTool", "format", "--standalone", "-t", _cluster_id(), *settings)
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        command = [*java(), "-Xmx512m", "-cp", self.classes, "kafka.Kafka", str(self._properties)]
        self.process = start(command, self.folder / "broker.log")
        give_up = time.monotonic() + PATIENCE
        while time.monotonic() < give_up:
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self.process.poll() is None, (self.folder / "broker.log").read_text()[-3000:]
            time.sleep(0.2)
        raise AssertionError("the broker does not listen")

    def stop(self) -> None:
        """Ends it as an operator would, so that nothing that was acknowledged is lost."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait(PATIENCE)

    def restart(self) -> None:
        self.stop()
        self.start()

    def create(self, topic: str) -> None:
        """Makes a topic beforehand: what is sent to one that is just being made may be lost (KAFKA-15591)."""
        where = ["--bootstrap-server", self.address]
        self._tool("org.apache.kafka.tools.TopicCommand", "--create", "--topic", topic, *where)

    def read(self, topic: str) -> list[str]:
        """All records of the topic, which nobody sends to any more."""
        where = ["--bootstrap-server", self.address, "--topic", topic]
        offsets = self._tool("org.apache.kafka.tools.GetOffsetShell", *where)
        records = sum(int(line.rsplit(":", 1)[1]) for line in offsets.split())
        most = ["--from-beginning", "--max-messages", str(records)]
        lines = self._tool("org.apache.kafka.tools.consumer.ConsoleConsumer", *where, *most).splitlines()
        assert len(lines) == records
        return lines

    def end(self) -> None:
        if self.process is not None:
            kill(self.process)

    def _tool(self, name: str, *argv: str) -> str:
        command = [*java(), "-cp", self.classes, name, *argv]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE).stdout


class Producer:
    """Kafka's console producer: each line is a record, acknowledged once and in order.

    keyed   whether a line is KEY|VALUE, and the value NULL is none
    """

    def __init__(self, broker: Broker, topic: str, *, keyed: bool = False) -> None:
        # Of its own the console producer gives a batch up after three tries, which a restart outlasts.
        settings = ["acks=all", "enable.idempotence=true", "linger.ms=20", "delivery.timeout.ms=120000"]
        settings += ["retries=2147483647", "request.timeout.ms=30000"]
        command = [*java(), "-Xmx256m", "-cp", broker.classes, "org.apache.kafka.tools.ConsoleProducer"]
        command += ["--bootstrap-server", broker.address, "--topic", topic]
        for one in settings:
            command += ["--producer-property", one]
        for one in ("parse.key=true", "key.separator=|", "null.marker=NULL") if keyed else ():
            command += ["--property", one]
        self._log = (broker.folder / "producer.log").open("wb")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=self._log, stderr=self._log, start_new_session=True
        )

    def send(self, records: Iterable[str]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{one}\n" for one in records).encode())
        self._process.stdin.flush()

    def end(self) -> None:
        """Returns when every record is acknowledged."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(PATIENCE) == 0
        self._log.close()

    def kill(self) -> None:
        if self._process.poll() is None:
            kill(self._process)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._log.close()


def _cluster_id() -> str:
    """A name that does not begin with a dash, which would be an option: the first bit is 0."""
    number = uuid.UUID(int=uuid.uuid4().int >> 1)
    return base64.urlsafe_b64encode(number.bytes).decode().rstrip("=")
