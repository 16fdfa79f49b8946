"""What questions cost over sites that are opened by addresses of a server: rounds, requests, bytes and time.

`tidemark serve` speaks TLS with a certificate that is made for it, and gives the files of all sites. A round
is all requests of a question that are under way together, as the client sees them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.data import Oracle
from bench.latency import MS, timed
from bench.report import Section, number, say, table
from bench.sites.in_stores import KEY, KINDS, Kind, Reader
from bench.sites.rows import Loads, Sizes
from bench.sites.served import LIMITS, SERVE, started
from bench.store_questions import PHIS
from tests.jobs.http_served import certificate_of_here
from tests.stores.gate import Request, rounds
from tidemark import query
from tidemark.warehouse.delta.served_client import ServedClient


def measure(section: Section, folder: Path, uris: Mapping[str, str], sizes: Sizes) -> None:
    """Adds the figures of these sites behind a server."""
    certificate, key = certificate_of_here(folder)
    secure = ["--certificate", f"{certificate}", "--private-key", f"{key}"]
    sites = [word for name, uri in uris.items() for word in ("-w", f"{name}={uri}")]
    with started([*SERVE, *LIMITS, *secure, *sites]) as server:
        options = {"token": server.token, "certificate": str(certificate)}
        there = {name: f"https://127.0.0.1:{server.port}/{name}" for name in uris}
        far, near = Reader.of(options, there), query.open(uris)
        _assert_answers(far.wh, Loads.of(sizes.rows, sizes.sites, sizes.runs[0]))
        say("  answers over https are right")
        lines = [_compare(section, kind, far, near, sizes) for kind in KINDS]
    head = ["question", "rounds", "requests", "bytes", "over https (ms)", "on the disk (ms)"]
    section.text(
        f"The same {sizes.sites} sites of {sizes.runs[0]} runs, opened by the addresses of `tidemark serve` "
        "on this machine, with TLS; nothing that was read before is in memory but marks. Bytes are of the "
        f"bodies of all answers of the server. Medians of {sizes.stored_questions}:\n\n" + table(head, lines)
    )


def _assert_answers(wh: Any, loads: Loads) -> None:
    """All answers are exact: the rows are those of the loads."""
    oracle, live = Oracle.of(loads.all), sum(part.rows for part in loads.live)
    for answer in wh.quantile([0.0, 0.5, 0.99, 1.0], mode="exact"):
        assert (answer.N, answer.m, answer.value) == (loads.rows, live, oracle.quantile(answer.phi)), answer
    assert wh.frequency(KEY, mode="exact").count == loads.counts_of(KEY)


def _compare(section: Section, kind: Kind, far: Reader, near: Any, sizes: Sizes) -> list[str]:
    """Asks the server and the disk in turn; adds a figure, and returns a line of the table."""
    spent: list[tuple[float, float, int, int, int]] = []
    for turn, phi in zip(range(-1, sizes.stored_questions), PHIS, strict=False):  # the first one warms
        far.forget()
        with _requests() as made:
            seconds, there = timed(partial(kind.ask, far.wh, phi))
        here_seconds, here = timed(partial(kind.ask, near, phi))
        assert _told(there) == _told(here), (kind.name, there, here)
        if turn >= 0:
            size = sum(one.answered for one in made)
            spent.append((seconds * MS, here_seconds * MS, rounds(made), len(made), size))
    over, on_disk, in_rounds, requests, size = map(statistics.median, zip(*spent, strict=True))
    section.add(f"over https: {kind.name}, rounds", in_rounds, "", kind.rounds)
    section.add(f"over https: {kind.name}, bytes", size, "")
    return [kind.name, *map(number, (in_rounds, requests, size, over, on_disk))]


def _told(answer: Any) -> list[Any]:
    """What must not depend on the way: values and their certain bounds."""
    found = answer if hasattr(answer, "__iter__") else [answer]
    return [[str(getattr(one, name)) for name in (*one.INTERVAL, "N", "m")] for one in found]


@contextmanager
def _requests() -> Iterator[list[Request]]:
    """The requests that clients make in the block."""
    made: list[Request] = []
    post: Callable[..., bytes] = ServedClient.post

    def noted(client: ServedClient, path: str, body: Mapping[str, Any], most: int) -> bytes:
        began = time.monotonic()
        found = post(client, path, body, most)
        made.append(Request("POST", path, began, time.monotonic(), answered=len(found)))
        return found

    client_class: Any = ServedClient
    client_class.post = noted
    try:
        yield made
    finally:
        client_class.post = post
