"""Rows that are split over several warehouses, on disks, in two object stores and at a server, as one list.

Each site loads, streams and deletes while questions are asked. An answer tells how many rows it saw of each
site, which says how far that site was: so what the answer must be is known, whatever came meanwhile.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.http_served import TOKEN, serving
from tests.query.siteworld import OPTIONS, SCHEMA, Row, drawn, table
from tests.query.worlds import Oracle
from tests.soak import some
from tests.stores.conftest import Place
from tests.stores.server import Server, running
from tidemark import query, stream, warehouse
from tidemark.query.reading import live_cache
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.snapshots import sites as sites_module


@dataclass
class Site:
    """A warehouse, and its rows after each of its steps, the first ones loaded; no two have as many rows.

    door: the address and options of a server through which it is read; None to read it where it is written.
    """

    uri: str
    options: dict[str, str] | None
    chance: random.Random
    door: tuple[str, dict[str, str]] | None = None
    states: list[list[Row]] = field(default_factory=list)
    batches: int = 0

    def begin(self, rows: list[Row]) -> None:
        warehouse.create(None, self.uri, ["x"], schema=SCHEMA, storage_options=self.options, **OPTIONS)
        self.states.append(rows)
        warehouse.load(None, self.uri, table(rows), "first", storage_options=self.options)

    def work(self) -> None:
        """Streams, loads, deletes and streams again."""
        self.stream()
        warehouse.load(None, self.uri, storage_options=self.options)
        without = {key: [row for row in self.states[-1] if row["k"] != key] for key in "acdefghij"}
        key = next(key for key, rows in without.items() if self.is_new(len(rows)))
        self.states.append(without[key])
        warehouse.delete(None, self.uri, where=f"k = '{key}'", storage_options=self.options)
        self.stream()

    def stream(self) -> None:
        count = next(more for more in range(20, 1000) if self.is_new(len(self.states[-1]) + more))
        rows = drawn(self.chance, count)
        self.states.append([*self.states[-1], *rows])
        stream.append(
            None,
            self.uri,
            table(rows),
            source="s",
            batch=self.batches,
            ahead=None,
            storage_options=self.options,
        )
        self.batches += 1

    def is_new(self, rows: int) -> bool:
        """Whether the site never had so many rows, so that the number says which they are."""
        return all(len(state) != rows for state in self.states)

    def at(self, rows: int) -> list[Row]:
        """The rows when there were so many."""
        (found,) = (state for state in self.states if len(state) == rows)
        return found


def opened(sites: dict[str, Site], **how: Any) -> query.Warehouse:
    doors = {name: site.door or (site.uri, site.options) for name, site in sites.items()}
    options = {name: own for name, (_, own) in doors.items()}
    return query.open({name: uri for name, (uri, _) in doors.items()}, options, **how)


def seen(sites: dict[str, Site], answer: Any) -> list[Row]:
    """The rows that an answer must be about."""
    return [row for name, facts in answer.by_site().items() for row in sites[name].at(facts.rows)]


def check(wh: query.Warehouse, sites: dict[str, Site]) -> Any:
    """AssertionError unless exact answers are those of the rows that they saw; returns one of them."""
    answers = wh.quantile([0.1, 0.5, 0.99], mode="exact")
    truth = Oracle.of([row["x"] for row in seen(sites, answers[0])])
    for answer in answers:
        assert (answer.N, answer.nulls, answer.error_bound) == (truth.n, truth.nulls, 0)
        assert answer.value == pytest.approx(truth.quantile(answer.phi), nan_ok=True)
    point = wh.rank(50)
    at_50 = Oracle.of([row["x"] for row in seen(sites, point)])
    assert (point.rank_lo, point.rank_hi) == (at_50.le(50), at_50.le(50))
    quick = wh.quantile(0.5, mode="quick")
    exact = Oracle.of([row["x"] for row in seen(sites, quick)]).quantile(0.5)
    assert quick.low <= exact <= quick.high
    count = wh.frequency("b", mode="exact")
    assert count.count == Counter(row["k"] for row in seen(sites, count))["b"]
    return answers[1]


def federated(sites: dict[str, Site]) -> None:
    """Asks while all sites are at work, and once they rest; then at the moments of the answers again."""
    wh, asked = opened(sites), []
    with ThreadPoolExecutor(len(sites)) as workers:
        running_sites = [workers.submit(site.work) for site in sites.values()]
        while not all(one.done() for one in running_sites):
            asked.append(check(wh, sites))
        for one in running_sites:
            one.result()
    last = check(wh, sites)
    assert {name: facts.rows for name, facts in last.by_site().items()} == {
        name: len(site.states[-1]) for name, site in sites.items()
    }
    rows = wh.sql("SELECT _site, count(*) FROM events GROUP BY _site").fetchall()
    assert dict(rows) == {name: len(site.states[-1]) for name, site in sites.items()}
    for answer in [asked[len(asked) // 2], asked[-1], last] if asked else [last]:
        assert opened(sites, at=answer.moment).quantile(0.5, mode="exact").value == pytest.approx(
            answer.value, nan_ok=True
        )


@pytest.fixture(scope="module")
def second_server() -> Iterator[Server]:
    """Another object store."""
    with running() as started:
        yield started


@pytest.mark.slow
def test_sites_on_a_disk_in_two_stores_and_at_a_server_answer_as_their_rows(
    tmp_path: Path, place: Place, second_server: Server
) -> None:
    chance = random.Random(12)
    sites = {
        "disk": Site(str(tmp_path / "near"), None, chance),
        "first store": Site(f"{place.uri}-federated", place.options, chance),
        "second store": Site(second_server.address("federated"), second_server.options, chance),
        "server": Site(str(tmp_path / "served"), None, chance),
    }
    for site in sites.values():
        site.begin(drawn(chance, chance.randint(60, 120)))
    served = sites["server"]
    with serving({"flights": query.open(served.uri)}) as at:
        served.door = f"http://127.0.0.1:{at.port}/flights", {"token": TOKEN}
        federated(sites)


@pytest.mark.slow
@pytest.mark.parametrize("number", some(range(1, 9), 2))
def test_any_split_answers_as_the_rows_together(tmp_path: Path, number: int) -> None:
    """Also in windows and by key, where one warehouse has all rows."""
    chance = random.Random(number)
    rows = drawn(chance, 60 * number)
    cuts = sorted(chance.sample(range(20, len(rows) - 20, 23), number - 1))
    sites = {f"site {i}": Site(str(tmp_path / f"{i}"), None, chance) for i in range(number)}
    for site, start, stop in zip(sites.values(), [0, *cuts], [*cuts, len(rows)], strict=True):
        site.begin(rows[start:stop])
    whole = Site(str(tmp_path / "whole"), None, chance)
    whole.begin(rows)
    one, many = query.open(whole.uri), opened(sites)
    questions: list[Callable[[query.Warehouse], Any]] = [
        lambda wh: [(one.phi, one.value) for one in wh.quantile([0, 0.3, 1], mode="exact", last="4d")],
        lambda wh: [(one.group, one.value) for one in wh.quantile(0.5, by="g", mode="exact", least_rows=5)],
        lambda wh: [(one.value, one.count) for one in wh.heavy_hitters(0.05, mode="exact")],
        lambda wh: wh.distinct(mode="exact").count,
        lambda wh: [(one.value, one.rank) for one in wh.rank([5, 50], every="3d")],
    ]
    for ask in questions:
        assert sorted(map(str, _listed(ask(many)))) == sorted(map(str, _listed(ask(one))))
    federated(sites)


def _listed(found: Any) -> list[Any]:
    return found if isinstance(found, list) else [found]


def _site_of_before(self: Any, needed: Any = None, *, max_age: float = 0.0) -> Any:
    """The broken variant: a site that moved is read at its new version with the live rows of the old one."""
    found = {name: one.newest(needed, max_age=max_age) for name, one in self.readers.items()}
    self._first = getattr(self, "_first", None) or sites_module.SitesSnapshot(found, self.options)
    return self._first


def _of_the_first(self: Any, snapshot: Any, projection: Any, view: Any) -> Any:
    """The broken variant: the live rows of the first site stand for those of all."""
    for site in view.sites:
        for batch_range in site.batches:
            yield self._cached(snapshot.sites[0], projection, batch_range, site.live_counts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "name", "mistake"),
    [
        (sites_module.SitesReader, "newest", _site_of_before),
        (live_cache.LiveCache, "rows", _of_the_first),
    ],
)
def test_mistakes_beside_writers_are_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, mistake: Any
) -> None:
    chance = random.Random(3)
    sites = {name: Site(str(tmp_path / name), None, chance) for name in "ab"}
    for site in sites.values():
        site.begin(drawn(chance, chance.randint(60, 120)))
    monkeypatch.setattr(owner, name, mistake)
    with pytest.raises((AssertionError, DamagedWarehouse)):
        federated(sites)
