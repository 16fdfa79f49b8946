"""A Spark cluster on this machine: a master and its workers, as processes of pyspark's own jars."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[str]:
    """The address of a master that has so many workers of one core each; all are ended by their own ids."""
    port, *pages = free_ports(2 + workers)
    address = f"spark://127.0.0.1:{port}"
    with ExitStack() as running:
        master = ["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(pages[0])]
        running.enter_context(daemon(folder / "master", *master))
        wait_for(folder / "master" / "log", "elected leader")  # a worker that is too early waits for long
        homes = [folder / f"worker-{number}" for number in range(workers)]
        for home, page in zip(homes, pages[1:], strict=True):
            options = ["--host", "127.0.0.1", "--webui-port", str(page), "--cores", "1", "--memory", "1g"]
            running.enter_context(daemon(home, "worker.Worker", *options, address))
        for home in homes:
            wait_for(home / "log", "Successfully registered with master")
        yield address


@contextmanager
def daemon(home: Path, name: str, *options: str) -> Iterator[None]:
    """A process of Spark's standalone mode; what it says goes to `log` in its home."""
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
        process = subprocess.Popen(line, env=env, cwd=home, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def environment() -> dict[str, str]:
    """This process's variables without what would lead Spark or Python to the tree."""
    unwanted = ("PYSPARK_", "PYTHONPATH", "SPARK_HOME", "SPARK_CONF_DIR")
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


def submit(address: str, python: Path, *line: object) -> subprocess.CompletedProcess[str]:
    """spark-submit to the cluster; `python` runs the driver and the tasks."""
    env = {**environment(), "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    how = ["--conf", f"spark.executor.extraJavaOptions={SHORT_LIVED}"]
    return subprocess.run(
        [str(SPARK_HOME / "bin" / "spark-submit"), "--master", address, *how, *map(str, line)],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
