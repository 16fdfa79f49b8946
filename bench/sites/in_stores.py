"""What questions cost over sites in object stores: rounds of requests, bytes, and time beside one site.

Each site is a warehouse in the store of the benches, whose gate adds latency to each request. A round is all
requests of a question that are under way together. As many requests that find nothing, sent at once, show how
much of the time is that of the store of the benches, a process of Python, and of its client.
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
from tidemark.warehouse.delta.round_trips import at_once
from tidemark.warehouse.delta.store import Store

LATENCY = 0.025  # seconds that the gate adds to each request
RUNS = 3
MOST_ROUNDS, MOST_TIMES = 2, 1.2
KEY = 2
COLUMNS = ("question", "rounds", "requests", "bytes", "sites (ms)", "one site (ms)")


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

    def ask_nothing(self, requests: int) -> None:
        """Sends so many requests at once to its stores, for files that are not there."""
        found = (store.files.open_objects() for store in self.stores)
        objects = [one for one in found if one is not None]
        at_once(lambda i: objects[i % len(objects)].get(f"nothing/{i}"), range(requests))


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
        f"memory but marks. Medians of {sizes.stored_questions}. One site is the slowest one, alone. The "
        "last column is the ratio for as many requests that find nothing, of all sites and of one:\n\n"
        + table([*COLUMNS, "ratio", "requests alone"], lines)
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
    alone: list[list[Spent]] = [[] for _ in readers[:2]]
    for turn, phi in zip(range(-1, sizes.stored_questions), PHIS, strict=False):  # the first one warms
        for reader, own in zip(readers, spent, strict=True):
            reader.forget()
            one = spent_on(server, LATENCY, partial(kind.ask, reader.wh, phi))
            if turn >= 0:
                own.append(one)
        for reader, own, nothing in zip(readers, spent, alone, strict=False):
            if own:
                sent = partial(reader.ask_nothing, own[-1].requests)
                nothing.append(spent_on(server, LATENCY, sent))
    rounds, requests, size = (
        statistics.median(getattr(one, name) for one in spent[0]) for name in ("rounds", "requests", "bytes")
    )
    several, *each = (statistics.median(one.seconds for one in own) * MS for own in spent)
    requests_of_all, of_one = (statistics.median(one.seconds for one in own) * MS for own in alone)
    section.add(f"in a store: {kind.name}, rounds", rounds, "", kind.rounds)
    section.add(f"in a store: {kind.name}, sites / the slowest site", several / max(each), "x", MOST_TIMES)
    section.add(
        f"in a store: {kind.name}, its requests alone, sites / one site", requests_of_all / of_one, "x"
    )
    shown = (rounds, requests, size, several, max(each), several / max(each), requests_of_all / of_one)
    return [kind.name, *map(number, shown)]
