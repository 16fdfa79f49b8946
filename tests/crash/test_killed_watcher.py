"""A process that watches is ended by SIGKILL before and after it tells of a change, beside a writer."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidemark import stream, warehouse

SCHEMA = pa.schema([("ms", pa.float64()), ("o", pa.string())])
WHEN = "frequency('a') >= 10"
PATIENCE = 60.0
# What is killed stops where it is told to: before it notes a change in the receiver's file, or after.
WATCHER = """
import json, sys
from tidemark import query
when, uri, state, receiver, stops = sys.argv[1:]

def stop(where):
    if where == stops:
        print(where, flush=True)
        sys.stdin.read()

def tell(notice):
    stop("before")
    with open(receiver, "a") as file:
        file.write(json.dumps(notice) + chr(10))
    stop("after")

with query.alert(when, wh=query.open(uri), state=state, notify=tell) as alert:
    for _ in alert.watch(every=0.05, poll=0.01):
        pass
"""


class Service:
    """A warehouse, and what the receiver of its alert got."""

    def __init__(self, folder: Path) -> None:
        self.uri, self.state, self.receiver = (str(folder / name) for name in ("w", "state", "received"))
        Path(self.receiver).touch()
        warehouse.create(None, self.uri, ["ms"], schema=SCHEMA, key="o")
        self.batches = 0

    def write(self, rows: int, key: str) -> int:
        batch, self.batches = self.batches, self.batches + 1
        table = pa.table({"ms": [1.0] * rows, "o": [key] * rows}, schema=SCHEMA)
        stream.append(None, self.uri, table, source="s", batch=batch)
        return batch

    @property
    def received(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in Path(self.receiver).read_text().splitlines()]

    @contextmanager
    def watching(self, stops: str = "") -> Iterator[subprocess.Popen[str]]:
        """A watcher in a process of its own, until a SIGKILL at the end of the block."""
        command = [sys.executable, "-c", WATCHER, WHEN, self.uri, self.state, self.receiver, stops]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as one:
            try:
                yield one
            finally:
                one.kill()

    def wait_for(self, state: str, notices: int = 1) -> None:
        """Until the receiver has so many, this state last; the writer goes on meanwhile."""
        end = time.monotonic() + PATIENCE
        while len(self.received) < notices or self.received[-1]["state"] != state:
            assert time.monotonic() < end, (state, self.received)
            self.write(1, "b")
            time.sleep(0.05)


def stopped(one: subprocess.Popen[str], where: str) -> None:
    assert one.stdout is not None
    assert one.stdout.readline().strip() == where


@pytest.mark.slow
def test_a_watcher_that_is_killed_tells_each_change_at_least_once_with_one_id(tmp_path: Path) -> None:
    service = Service(tmp_path)
    batch = service.write(10, "a")
    with service.watching("after") as one:
        stopped(one, "after")  # the receiver has it, the state file does not say so yet
    with service.watching("before") as one:
        stopped(one, "before")  # it is about to be told again
        service.write(3, "b")
    assert len(service.received) == 1
    with service.watching():
        service.wait_for("certain", 2)  # told again, with its id
        warehouse.unload(None, service.uri, source="s", batches=(batch, batch))
    # killed at whatever it did after the commit
    with service.watching():
        service.wait_for("clear")
    told = service.received
    ids = list(dict.fromkeys(one["id"] for one in told))
    assert [next(one["state"] for one in told if one["id"] == found) for found in ids] == ["certain", "clear"]
    assert all(one == other for one in told for other in told if one["id"] == other["id"])
