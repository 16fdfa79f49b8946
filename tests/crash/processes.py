"""Starting, watching and killing the processes that the crash tests attack."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

from tests.crash.loader import Go, Job, Kill, session_members
from tests.crash.truth import Seen
from tidemark.warehouse.os_errors import is_store_failure

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
SOAK_KILLS = int(os.environ.get("TIDEMARK_SOAK_KILLS", "0"))  # `make soak` sets it
PATIENCE = 300  # seconds after which a process that says nothing has failed the test
SUBMIT = shutil.which("spark-submit", path=str(Path(sys.executable).parent)) or "spark-submit"
_CONF = [
    "--master",
    "local[2]",
    "--driver-memory",
    "1g",
]


def submit(script: Path, *argv: str) -> list[str]:
    """The command line of a spark-submit of a script."""
    return [SUBMIT, *_CONF, "--conf", "spark.sql.shuffle.partitions=2", str(script), *argv]


def load_command(*argv: str, spark: bool) -> list[str]:
    """The command line of the job that loads: by spark-submit, or by Python and without Spark."""
    script = ROOT / "jobs" / "load_batch.py"
    return submit(script, *argv) if spark else [sys.executable, str(script), *argv, "--engine", "local"]


def start(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Starts a command in a session of its own, so that all it starts can be found and killed."""
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    # The test session's own gateway is none of a new driver's business.
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS"):
        environment.pop(name, None)
    with log.open("wb") as out:
        return subprocess.Popen(
            command, cwd=log.parent, env=environment, stdout=out, stderr=out, start_new_session=True
        )


def is_foreign(line: str) -> bool:
    """Whether a line of a log tells of an error that is no failure of an object store."""
    if line.startswith("error: "):
        return not is_store_failure(Exception(line))
    return "Traceback" in line or "panicked" in line


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to every process of the session; returns when all are gone."""
    while members := session_members(process.pid):
        for pid in members:
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            try:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                select.select([descriptor], [], [], PATIENCE)
            except ProcessLookupError:
                pass
            finally:
                os.close(descriptor)
    process.wait(PATIENCE)


class Talk:
    """A process of ours and the line to it."""

    def __init__(self, command: list[str], folder: Path, name: str) -> None:
        self.name, self.log = name, folder / f"{name}.log"
        address = str(folder / f"{name}.sock")
        self._listener = Listener(address, family="AF_UNIX")
        self.process = start([*command, address], self.log)
        self.connection: Connection | None = None

    def connect(self) -> None:
        """Waits until the process is up."""
        if self.connection is None:
            inner: Any = self._listener  # its socket has no public name
            ready, _, _ = select.select([inner._listener._socket], [], [], PATIENCE)
            assert ready, self.failed("did not start")
            self.connection = self._listener.accept()
            assert self.hear()[0] == "ready"

    def say(self, order: Any) -> None:
        self.connect()
        assert self.connection is not None
        self.connection.send(order)

    def hear(self) -> Any:
        """The next message; None once the process is dead."""
        self.connect_if_needed()
        assert self.connection is not None
        try:
            assert self.connection.poll(PATIENCE), self.failed("says nothing")
            return self.connection.recv()
        except (EOFError, ConnectionResetError):
            return None

    def connect_if_needed(self) -> None:
        if self.connection is None:
            self.connect()

    def failed(self, what: str) -> str:
        return f"{self.name} {what}:\n{self.log.read_text()[-4000:]}"

    def end(self) -> None:
        kill(self.process)
        self._listener.close()
        if self.connection is not None:
            self.connection.close()


class LoaderProcess(Talk):
    """A loader (see loader.py): a Spark driver by spark-submit or by Python, or one without Spark."""

    def __init__(self, folder: Path, name: str, *, submitted: bool = False, engine: str = "spark") -> None:
        script = HERE / "loader.py"
        command = submit(script) if submitted else [sys.executable, str(script)]
        super().__init__([*command, engine], folder, name)
        self.points: list[tuple[str, str]] = []
        self.ended: dict[str, Any] = {}
        self.held: dict[str, str] = {}

    def begin(self, *jobs: Job) -> None:
        for job in jobs:
            self.ended.pop(job.name, None)
            self.held.pop(job.name, None)
            self.say(job)

    def go(self, *names: str) -> None:
        for name in names:
            if self.held.pop(name, None):
                self.say(Go(name))

    def until(self, name: str) -> str | None:
        """Waits until the job is held or done; the point, or None where it is done."""
        while name not in self.held and name not in self.ended:
            self._take(self.hear())
        return self.held.get(name)

    def done(self, *names: str) -> None:
        """Waits for the jobs to end; each must have ended well."""
        for name in names:
            while name not in self.ended:
                self._take(self.hear())
            assert self.ended[name] == 0, f"{name} ended with {self.ended[name]}\n{self.failed('')}"

    def die(self, when: Kill, *jobs: Job) -> dict[str, str]:
        """Lets the process kill itself in the middle of the jobs; the last point that each had reached."""
        self.say(when)
        self.begin(*jobs)
        while (message := self.hear()) is not None:
            self._take(message)
        kill(self.process)
        assert self.process.wait(PATIENCE) != 0
        return dict(self.points)

    def foreign_errors(self) -> list[str]:
        """What it told on stderr that is no failure of an object store."""
        lines = self.log.read_text().splitlines()
        return [line for line in lines if is_foreign(line)]

    def _take(self, message: Any) -> None:
        assert message is not None, self.failed("died")
        kind, name, what = message
        if kind == "at":
            self.points.append((name, what))
        elif kind == "held":
            self.held[name] = what
        else:
            self.ended[name] = what


class ReaderProcess(Talk):
    """A reader (see reader.py)."""

    def __init__(self, folder: Path) -> None:
        super().__init__([sys.executable, str(HERE / "reader.py")], folder, "reader")

    def watch(self, uri: str) -> None:
        self.say(("watch", uri))

    def collect(self, uri: str) -> tuple[int, list[Seen]]:
        """How often the warehouse was looked at, and the journal; the last look is after this call."""
        self.say(("collect", uri))
        answer: tuple[int, list[Seen]] | None = self.hear()
        assert answer is not None, self.failed("died")
        return answer
