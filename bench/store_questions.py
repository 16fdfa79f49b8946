"""Questions to a warehouse in an object store, by the latency of its requests.

A first answer is that of a fresh process, with its imports. The peer is DuckDB's `quantile_disc` over the
same rows in `events`, read through delta-rs' and pyarrow's dataset, because DuckDB's own reader of S3 is an
extension that is not in its package.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from bench.data import FIRST_DAY, Oracle, Rows
from bench.report import Section, number, say, table
from bench.store_spent import spent_on
from tests.stores.server import Server
from tidemark import query, stream, warehouse
from tidemark.warehouse.delta.store import Store

LATENCIES = (0.0, 0.025, 0.1)  # seconds that the gate adds to each request
TARGET_LATENCY = 0.025
PHIS = [(i * 389 % 997 + 1) / 1000 for i in range(997)]  # no two questions are the same
FRESH = """
import json, sys
uri, options, phi = json.loads(sys.stdin.read())
from tidemark import query
print(float(query.open(uri, options).quantile(phi)))
"""
# An earlier version opened one log after the other and read files range by range. Its figures over the same
# kind of warehouse (25 runs, 10 live batches, 25 ms), measured once: rounds, requests, milliseconds.
BEFORE = (
    ("fresh process, first accurate answer", 500, 926, 17_845),
    ("warm, accurate", 12, 33, 377),
    ("warm, quick", 8, 8, 253),
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Rows of a run, runs, rows of a live batch, live batches, questions of each kind."""

    rows: int = 200_000
    runs: int = 25
    batch_rows: int = 20_000
    batches: int = 10
    questions: int = 21


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of question: `ask` returns an answer for a phi; targets of rounds and milliseconds at 25 ms."""

    name: str
    ask: Callable[[float], Any]
    questions: int
    rounds: int | None = None
    milliseconds: float | None = None
    is_exact: bool = True


def measure(server: Server, section: Section, sizes: Sizes) -> None:
    """Adds the figures to the section."""
    uri, oracle = _fill(server, sizes)
    wh = query.open(uri, server.options)
    patient = query.open(uri, server.options, max_staleness="1 hour")
    for reader in (wh, patient):
        reader.quantile(0.5)
    _fresh(server, uri, 0.5)
    fresh, few = min(5, sizes.questions), min(7, sizes.questions)
    kinds = [
        Kind("fresh process, first accurate answer", lambda phi: _fresh(server, uri, phi), fresh, 8, 1000),
        Kind("warm, accurate, blocks in the store", lambda phi: _forgetful(wh, server, uri, phi), few, 2, 90),
        Kind("warm, accurate, as it comes", wh.quantile, sizes.questions, 2, 90),
        Kind("warm, quick", lambda phi: wh.quantile(phi, mode="quick"), sizes.questions, 1, 35, False),
        Kind("not looking for newer data, accurate", patient.quantile, sizes.questions, 1),
        Kind(
            "not looking for newer data, quick",
            lambda phi: patient.quantile(phi, mode="quick"),
            sizes.questions,
            0,
            1,
            False,
        ),
        Kind("DuckDB's quantile_disc", lambda phi: _duckdb(server, uri, phi), few),
    ]
    lines, phis = [], iter(PHIS)
    for latency in LATENCIES:
        say(f"stores: questions at {1000 * latency:g} ms")
        medians = {}
        for kind in kinds:
            asked = islice(phis, kind.questions)
            found = [_ask(server, latency, kind, phi, oracle) for phi in asked]
            spent = [statistics.median(one) for one in zip(*found, strict=True)]
            medians[kind.name] = spent[2]
            lines.append([f"{1000 * latency:g}", kind.name, *map(number, spent)])
            if latency == TARGET_LATENCY:
                if kind.rounds is not None:
                    section.add(f"rounds: {kind.name}", spent[0], "", kind.rounds)
                if kind.milliseconds is not None:
                    section.add(f"{kind.name}, 25 ms a request", spent[2], "ms", kind.milliseconds)
        section.add(
            f"DuckDB / warm, accurate, blocks in the store, {1000 * latency:g} ms a request",
            medians["DuckDB's quantile_disc"] / medians["warm, accurate, blocks in the store"],
            "x",
        )
    head = ["ms of latency", "question", "rounds", "requests", "milliseconds"]
    section.text(
        f"Questions over {sizes.runs} runs of {sizes.rows:,} rows and {sizes.batches} live batches, medians; "
        "each asks for another quantile. As it comes, a block that was read stays in memory:\n\n"
        + table(head, lines)
    )
    before = [[25, name, *map(number, spent)] for name, *spent in BEFORE]
    section.text(
        "An earlier version, over 25 runs of 20,000 rows and 10 live batches:\n\n" + table(head, before)
    )


def _fill(server: Server, sizes: Sizes) -> tuple[str, Oracle]:
    """A warehouse of many runs and live batches, and all of its rows, sorted."""
    say(f"stores: filling {sizes.runs} runs of {sizes.rows:,} rows")
    uri, options = server.address(uuid.uuid4().hex), server.options
    parts = [_rows(step, sizes.rows) for step in range(sizes.runs)]
    live = [_rows(sizes.runs + step, sizes.batch_rows) for step in range(sizes.batches)]
    schema = _arrow(parts[0]).schema
    warehouse.create(
        None,
        uri,
        ["value"],
        time="time",
        eps=0.01,
        kappa=sizes.runs + 1,
        schema=schema,
        storage_options=options,
    )
    for part in parts:
        warehouse.load(None, uri, _arrow(part), f"step-{part.step}", storage_options=options)
    for batch, part in enumerate(live):
        stream.append(None, uri, _arrow(part), source="s", batch=batch, storage_options=options)
    return uri, Oracle.of([*parts, *live])


def _rows(step: int, rows: int) -> Rows:
    return Rows("lognormal", step, rows, (FIRST_DAY + step, FIRST_DAY + step + 1), FIRST_DAY)


def _arrow(part: Rows) -> pa.Table:
    times = pa.array(part.times()).cast(pa.timestamp("us", tz="UTC"))
    return pa.table({"time": times, "value": part.values()})


def _ask(server: Server, latency: float, kind: Kind, phi: float, oracle: Oracle) -> tuple[float, ...]:
    """Rounds, requests and milliseconds of a question; its answer is right."""
    found: list[float] = []
    spent = spent_on(server, latency, lambda: found.append(float(kind.ask(phi))))
    allowed = 0 if kind.is_exact else 0.01 * len(oracle.values)
    assert oracle.error(phi, found[0]) <= allowed, (kind.name, phi, found)
    return spent.rounds, spent.requests, 1000 * spent.seconds


def _fresh(server: Server, uri: str, phi: float) -> float:
    """The answer of a process of its own."""
    given = json.dumps([uri, server.options, phi])
    # As for users: Python keeps the bytecode of what it imports.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(  # noqa: S603  ours
        [sys.executable, "-c", FRESH],
        input=given,
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return float(done.stdout)


def _forgetful(wh: query.Warehouse, server: Server, uri: str, phi: float) -> Any:
    """The answer of a reader that has no block in memory."""
    Store.from_uri(uri, server.options).files.forget()
    return wh.quantile(phi)


def _duckdb(server: Server, uri: str, phi: float) -> float:
    """The answer of DuckDB over the table `events`."""
    opened = DeltaTable(f"{uri}/events", storage_options=server.options)
    connection = duckdb.connect()
    connection.register("events", opened.to_pyarrow_dataset())
    found = connection.execute(f"SELECT quantile_disc(value, {phi}) FROM events").fetchall()
    return float(found[0][0])
