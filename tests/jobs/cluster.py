"""A Spark cluster on this machine: a master and its workers, as processes of pyspark's own jars."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.java import SHORT_LIVED

SPARK_HOME = Path(pyspark.__file__).resolve().parent
PATIENCE_SECONDS = 90

# The environment's own lets nothing but errors through, and here is waited for what they say.
LOG4J2 = """\
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss} %m%n
"""

SUBMIT = f"""\
#!/bin/sh
exec {SPARK_HOME}/bin/spark-submit --executor-memory 512m --conf spark.sql.shuffle.partitions=2 \\
    --conf "spark.executor.extraJavaOptions={SHORT_LIVED}" "$@"
"""


@dataclass(frozen=True)
class Cluster:
    """A running cluster: its address, its workers, and the Python that runs the drivers and the tasks."""

    address: str
    workers: list[subprocess.Popen[bytes]]
    folder: Path
    python: Path

    def start(self, line: str, **variables: str) -> subprocess.Popen[str]:
        """A line of the shell, with the cluster's `spark-submit`, in its folder."""
        env = {
            **environment(),
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "PYSPARK_PYTHON": str(self.python),
            "PYSPARK_DRIVER_PYTHON": str(self.python),
            **variables,
        }
        pipe = subprocess.PIPE
        command = ["/bin/bash", "-euo", "pipefail", "-c", line]
        return subprocess.Popen(command, cwd=self.folder, env=env, stdout=pipe, stderr=pipe, text=True)

    def run(self, line: str, **variables: str) -> str:
        """The same, to its end; returns what it printed."""
        return succeeded(self.start(line, **variables))


def succeeded(process: subprocess.Popen[str]) -> str:
    """What the process printed."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err[-3000:]
    return out


@contextmanager
def cluster(folder: Path, workers: int, python: Path) -> Iterator[Cluster]:
    """A master that has so many workers of one core each; all are ended by their own ids."""
    port, *pages = free_ports(2 + workers)
    address = f"spark://127.0.0.1:{port}"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "spark-submit").write_text(SUBMIT)
    (folder / "bin" / "spark-submit").chmod(0o755)
    with ExitStack() as running:
        master = ["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(pages[0])]
        running.enter_context(daemon(folder / "master", *master))
        wait_for(folder / "master" / "log", "elected leader")  # a worker that is too early waits for long
        homes = [folder / f"worker-{number}" for number in range(workers)]
        started = []
        for home, page in zip(homes, pages[1:], strict=True):
            options = ["--host", "127.0.0.1", "--webui-port", str(page), "--cores", "1", "--memory", "1g"]
            started.append(running.enter_context(daemon(home, "worker.Worker", *options, address)))
        for home in homes:
            wait_for(home / "log", "Successfully registered with master")
        yield Cluster(address, started, folder, python)


@contextmanager
def daemon(home: Path, name: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of Spark's standalone mode, in its own session; what it says goes to `log` in its home."""
    home.mkdir(parents=True)
    (home / "log4j2.properties").write_text(LOG4J2)
    line = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *options]
    env = {
        **environment(),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_WORKER_DIR": str(home / "work"),
        "SPARK_DAEMON_JAVA_OPTS": f"{SHORT_LIVED} -Dlog4j2.configurationFile={home}/log4j2.properties",
    }
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            line, env=env, cwd=home, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def environment() -> dict[str, str]:
    """This process's variables without what would lead Spark or Python to the tree."""
    unwanted = ("PYSPARK_", "PYTHONPATH", "SPARK_HOME")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    return {**kept, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody has now."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def wait_for(log: Path, words: str) -> None:
    """Until a process has said so."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not re.search(words, log.read_text(errors="replace")):
        assert time.monotonic() < end, log.read_text(errors="replace")[-2000:]
        time.sleep(0.2)
