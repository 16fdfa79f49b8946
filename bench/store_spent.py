"""What work with a warehouse in an object store takes: seconds, processor time, requests and rounds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil

from tests.stores.gate import rounds
from tests.stores.server import Server


@dataclass(frozen=True, slots=True)
class Spent:
    """What something took: seconds, processor time of this process and of the server, requests, rounds.

    And the bytes of the bodies of all answers.

    The processor time of Spark's processes is not in it.
    """

    seconds: float
    own: float
    servers: float
    requests: int
    rounds: int
    bytes: int


def spent_on(server: Server, latency: float, work: Callable[[], Any]) -> Spent:
    """What the work takes while the gate adds latency, in seconds, to each request."""
    server.set(latency=latency)
    processes = psutil.Process(), psutil.Process(server.process)
    began, before = time.perf_counter(), [_processor(process) for process in processes]
    work()
    taken = time.perf_counter() - began
    own, servers = (_processor(process) - spent for process, spent in zip(processes, before, strict=True))
    requests = server.requests()
    server.set()
    size = sum(request.answered for request in requests)
    return Spent(taken, own, servers, len(requests), rounds(requests), size)


def _processor(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
