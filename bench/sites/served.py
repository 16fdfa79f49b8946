"""The server over several sites, against DuckDB behind the same server, and quick questions beside slow ones.

The server has the last core of this process, and the clients, a process of their own, the first one. The time
of a client's question is from its first byte to the last one of the answer.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.request import Request, urlopen

import psutil
from deltalake import DeltaTable

from bench.data import Oracle
from bench.latency import MS
from bench.report import Section, number, say, table
from bench.sites import page
from bench.sites.duckdb_server import PARALLEL, WAITING
from bench.sites.rows import Loads, Sizes

SERVE = ["-m", "tidemark.jobs.cli.main", "serve", "--json"]
LIMITS = ["--parallel", f"{PARALLEL}", "--queue", f"{WAITING}"]
PATHS = 997  # of each client; no two questions of a client in a row are the same
SLOW = "/quantile?phi=0.5&where=value%20*%20key%20%3E%20100"  # a scan of all rows
MOST_MORE_MS = 20


@dataclass(frozen=True, slots=True)
class Asked:
    """What a number of clients measured. bytes and processor: of a question, the latter in seconds."""

    questions: int
    rate: float
    median: float
    p99: float
    bytes: float
    processor: float


@dataclass(frozen=True, slots=True)
class Running:
    """A server: its process, its port, and what lets clients in."""

    process: psutil.Process
    port: int
    token: str

    def ask(self, paths: Sequence[Sequence[str]], seconds: float, beside: str | None = None) -> Asked:
        """What clients measure that ask these paths in turn."""
        given = {"port": self.port, "token": self.token, "paths": paths, "seconds": seconds, "beside": beside}
        before = self.process.cpu_times()
        with _on_core(0):
            done = subprocess.run(
                [sys.executable, "-m", "bench.sites.clients"],
                input=json.dumps(given),
                stdout=subprocess.PIPE,
                check=True,
                text=True,
            )
        after, told = self.process.cpu_times(), json.loads(done.stdout)
        taken = sorted(told["taken"])
        spent = after.user + after.system - before.user - before.system
        return Asked(
            len(taken),
            len(taken) / told["seconds"],
            statistics.median(taken),
            taken[-1 - len(taken) // 100],
            told["bytes"] / len(taken),
            spent / len(taken),
        )

    def answer(self, path: str) -> dict[str, Any]:
        """The answer to a question."""
        headers = {"authorization": f"Bearer {self.token}"}
        with urlopen(Request(f"http://127.0.0.1:{self.port}{path}", headers=headers), timeout=60) as reply:
            found: dict[str, Any] = json.load(reply)
        return found


def measure(section: Section, uris: Mapping[str, str], sizes: Sizes) -> None:
    """Adds the figures of servers over these sites."""
    files = [file for uri in uris.values() for file in DeltaTable(f"{uri}/events").file_uris()]
    sites = [word for name, uri in uris.items() for word in ("-w", f"all.{name}={uri}")]
    oracle = Oracle.of(Loads.of(sizes.rows, sizes.sites, sizes.runs[0]).all)
    with (
        started([*SERVE, *LIMITS, *sites]) as ours,
        started(["-m", "bench.sites.duckdb_server", *files]) as theirs,
    ):
        for phi in (0.01, 0.5, 0.99):
            for one in (ours, theirs):
                (found,) = one.answer(f"/quantile?phi={phi}")["answers"]
                assert found["value"] == oracle.quantile(phi), (phi, found)
        say("  answers of the servers are right")
        page.measure(section, ours.port, ours.token)
        lines = []
        for clients in sizes.clients:
            of_each = [_paths(client) for client in range(clients)]
            quick = [[f"{path}&mode=quick" for path in paths] for paths in of_each]
            asked = {
                "quick": ours.ask(quick, sizes.seconds),
                "accurate": ours.ask(of_each, sizes.seconds),
                "DuckDB": theirs.ask(of_each, sizes.seconds),
            }
            for name in ("quick", "accurate"):
                faster = asked[name].rate / asked["DuckDB"].rate
                title = f"server, {clients} clients: {name}, questions a second / DuckDB"
                section.add(title, faster, "x")
            lines += [_line(clients, name, one) for name, one in asked.items()]
        more = _beside_a_slow_one(ours, sizes)
    section.add("server: p99 of quick questions beside a slow one, more than alone", more, "ms", MOST_MORE_MS)
    head = ["clients", "question", "questions a second", "median (ms)", "p99 (ms)", "bytes", "processor (ms)"]
    section.text(
        f"`tidemark serve` over {sizes.sites} sites of {sizes.runs[0]} runs, {sizes.rows:,} rows, and "
        "DuckDB's `quantile_disc` over the files of their `events` behind the same server; each on one core, "
        f"the clients on the other one. Each client asks for {sizes.seconds:g} seconds, one random phi after "
        "the other, each in one request. Bytes are of an answer's body, processor time is the server's for a "
        "question:\n\n" + table(head, lines)
    )


def _line(clients: int, name: str, asked: Asked) -> list[str]:
    shown = (asked.rate, asked.median * MS, asked.p99 * MS, asked.bytes, asked.processor * MS)
    return [str(clients), name, *map(number, shown)]


def _paths(client: int) -> list[str]:
    chance = random.Random(client)
    return [f"/quantile?phi={chance.random():.6f}" for _ in range(PATHS)]


def _beside_a_slow_one(server: Running, sizes: Sizes) -> float:
    """How many ms the p99 of one client's quick questions rises while another asks for scans."""
    quick = [[f"{path}&mode=quick" for path in _paths(0)]]
    server.answer(SLOW)
    alone = server.ask(quick, sizes.seconds)
    beside = server.ask(quick, sizes.seconds, SLOW)
    say(f"  quick questions: p99 {alone.p99 * MS:.1f} ms, beside a scan {beside.p99 * MS:.1f} ms")
    return (beside.p99 - alone.p99) * MS


@contextmanager
def started(words: Sequence[str]) -> Iterator[Running]:
    """A server process on the last core, until the end of the block."""
    with _on_core(-1):
        command = [sys.executable, *words]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603  ours
    with process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"the server did not start: {' '.join(words[:4])}"
        told = json.loads(line)
        port = int(told["url"].rstrip("/").rpartition(":")[2])
        try:
            yield Running(psutil.Process(process.pid), port, told["token"])
        finally:
            process.terminate()


@contextmanager
def _on_core(place: int) -> Iterator[None]:
    """Processes that are started in the block have one core of this process, the first (0) or last (-1)."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(cores)[place]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
