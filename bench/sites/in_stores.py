"""What questions cost over sites in object stores: rounds of requests, bytes, and time beside one site.

Each site is a warehouse in the store of the benches, whose gate adds latency to each request. A round is all
requests of a question that are under way together.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.data import Oracle, Rows
from bench.latency import MS
from bench.report import Section, number, say, table
from bench.sites.rows import Loads, Sizes, fill
from bench.store_questions import PHIS
from bench.store_spent import Spent, spent_on
from tests.stores.server import Server, running
from tidemark import query
from tidemark.warehouse.delta.store import Store

LATENCY = 0.025  # seconds that the gate adds to each request
RUNS = 3
MOST_ROUNDS, MOST_TIMES = 2, 1.2
KEY = 2


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of question. rounds: it takes at most so many."""

    name: str
    ask: Callable[[Any, float], Any]
    rounds: int


KINDS = (
    Kind("quick", lambda wh, phi: wh.quantile(phi, mode="quick"), MOST_ROUNDS),
    Kind("accurate", lambda wh, phi: wh.quantile(phi), MOST_ROUNDS),
    Kind("accurate, of a group", lambda wh, phi: wh.quantile(phi, where={"place": KEY}), MOST_ROUNDS),
    Kind("rows of a key", lambda wh, phi: wh.frequency(int(phi * 1000) + KEY), MOST_ROUNDS),
    Kind("quick, the 3 largest groups", lambda wh, phi: wh.quantile(phi, by="place", top=3, mode="quick"), 3),
)


@dataclass(frozen=True, slots=True)
class Reader:
    """An open reader, and where it reads."""

    wh: Any
    stores: tuple[Store, ...]

    @classmethod
    def of(cls, options: dict[str, str], uris: Mapping[str, str]) -> Reader:
        """A reader of one or several warehouses in a store, or of a server."""
        stores = tuple(Store.from_uri(uri, options) for uri in uris.values())
        return cls(query.open(uris, options), stores)

    def forget(self) -> None:
        """Forgets the blocks that are in memory."""
        for store in self.stores:
            store.files.forget()


def measure(section: Section, sizes: Sizes) -> None:
    """Adds the figures of sites in a store."""
    loads = Loads.of(sizes.stored_rows * sizes.sites, sizes.sites, RUNS)
    say(f"sites: {sizes.sites} of {sizes.stored_rows:,} rows in an object store")
    with running() as server:
        uris = {f"site_{site}": server.address(f"site-{site}") for site in range(sizes.sites)}
        for uri, own, live in zip(uris.values(), loads.history, loads.live, strict=True):
            fill(uri, own, [live], storage_options=server.options)
        each = [{name: uri} for name, uri in uris.items()]
        readers = [Reader.of(server.options, one) for one in (uris, *each)]
        _assert_answers(readers, loads)
        say("  answers over sites in a store are right")
        lines = [_compare(section, server, kind, readers, sizes) for kind in KINDS]
    section.text(
        f"{sizes.sites} sites of {sizes.stored_rows:,} rows in {RUNS} runs and a live batch each, in an "
        f"object store of this machine, {1000 * LATENCY:g} ms a request; nothing that was read before is in "
        f"memory but marks. Medians of {sizes.stored_questions}. One site is the slowest one, alone:\n\n"
        + table(["question", "rounds", "requests", "bytes", "sites (ms)", "one site (ms)", "ratio"], lines)
    )


def _assert_answers(readers: Sequence[Reader], loads: Loads) -> None:
    """Those over all sites, and over each."""
    known: list[list[Rows]] = [[*own, live] for own, live in zip(loads.history, loads.live, strict=True)]
    for reader, parts in zip(readers, (loads.all, *known), strict=True):
        oracle = Oracle.of(parts)
        for answer in reader.wh.quantile([0.0, 0.5, 0.99, 1.0], mode="exact"):
            assert (answer.N, answer.value) == (len(oracle.values), oracle.quantile(answer.phi)), answer
    assert readers[0].wh.frequency(KEY, mode="exact").count == loads.counts_of(KEY)


def _compare(
    section: Section, server: Server, kind: Kind, readers: Sequence[Reader], sizes: Sizes
) -> list[str]:
    """Asks all sites, and each one, in turn; adds figures, and returns a line of the table."""
    spent: list[list[Spent]] = [[] for _ in readers]
    for turn, phi in zip(range(-1, sizes.stored_questions), PHIS, strict=False):  # the first one warms
        for reader, own in zip(readers, spent, strict=True):
            reader.forget()
            one = spent_on(server, LATENCY, partial(kind.ask, reader.wh, phi))
            if turn >= 0:
                own.append(one)
    rounds, requests, size = (
        statistics.median(getattr(one, name) for one in spent[0]) for name in ("rounds", "requests", "bytes")
    )
    several, *each = (statistics.median(one.seconds for one in own) * MS for own in spent)
    section.add(f"in a store: {kind.name}, rounds", rounds, "", kind.rounds)
    section.add(f"in a store: {kind.name}, sites / the slowest site", several / max(each), "x", MOST_TIMES)
    shown = (rounds, requests, size, several, max(each), several / max(each))
    return [kind.name, *map(number, shown)]
