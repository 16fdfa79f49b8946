"""Several warehouses asked as one, on a disk and in a store: the rounds of one, and a silent one is named."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.stores.conftest import Place
from tests.stores.filled import Filled
from tests.stores.gate import Fault
from tests.stores.rows import HOW, rows
from tests.stores.server import Server
from tidemark import query, warehouse
from tidemark.query.reading.modes import KEY_MODES
from tidemark.warehouse.errors import StoreUnavailable


@pytest.fixture(scope="module")
def far_once(server: Server) -> list[Filled]:
    """Two warehouses in the store, of three loads and two live batches each."""
    return [Filled(Place(server, server.address(f"sites/{name}")), 3, 2) for name in "ab"]


@pytest.fixture
def far(far_once: list[Filled], place: Place) -> list[Filled]:
    """Copies of these, which a test may change."""
    names = zip("ab", far_once, strict=True)
    return [one.copy(replace(place, uri=f"{place.uri}-{name}")) for name, one in names]


def uris(far: list[Filled]) -> dict[str, str]:
    return {f"far {number}": one.place.uri for number, one in enumerate(far)}


def test_sites_on_a_disk_and_in_a_store_are_one(far: list[Filled], tmp_path: Path) -> None:
    near = rows(7)
    warehouse.create(None, tmp_path / "near", ["ms"], **HOW)
    warehouse.load(None, tmp_path / "near", near, "near")
    wh = query.open({"near": tmp_path / "near", **uris(far)}, far[0].place.options)
    for _ in range(2):
        tables = [near, *(one for site in far for one in site.committed)]
        ms = sorted(value for one in tables for value in one.column("ms").to_pylist())
        pages = Counter(page for one in tables for page in one.column("page").to_pylist())
        for phi in (0.1, 0.5, 0.99):
            answer = wh.quantile(phi, mode="exact")
            assert (answer.N, answer.error_bound) == (len(ms), 0)
            assert ms[answer.rank_lo - 1] == answer.value
        assert wh.frequency("/1", mode="exact").count == pages["/1"]
        assert wh.distinct(mode="exact").count == len(pages)
        far[1].append()
        far[0].move()


def test_the_sites_are_asked_side_by_side(far: list[Filled]) -> None:
    """A question takes as many rounds as in one warehouse: the sites' requests are sent together."""
    wh = query.open(uris(far), far[0].place.options)
    wh.quantile(0.5)
    assert far[0].rounds_of(lambda: wh.quantile([0.05, 0.31, 0.93])) == 1
    keys = query.open(uris(far), far[0].place.options)
    keys.frequency("/1")
    assert far[0].rounds_of(lambda: keys.frequency("/2")) == 1


def test_a_site_that_does_not_answer_is_named(far: list[Filled]) -> None:
    wh = query.open(uris(far), far[0].place.options)
    wh.quantile(0.5)
    far[1].append()
    far[1].place.server.set(Fault("403", path="flights-b/"))
    with pytest.raises(StoreUnavailable, match=r"far 1|flights-b"):
        wh.quantile(0.9)
    with pytest.raises(StoreUnavailable, match="the warehouse 'far 1': "):
        query.open(uris(far), far[0].place.options).quantile(0.5)
    far[1].place.server.set()
    assert sum(one.num_rows for site in far for one in site.committed) == wh.quantile(0.9).N


def test_a_site_that_does_not_answer_is_bounded_by_what_was_read_of_it(far: list[Filled]) -> None:
    """Its blocks and live rows are not read, and the bounds are certain for its last moment."""
    wh = query.open(uris(far), far[0].place.options, missing="bounds")
    wh.quantile(0.5)
    wh.top(2)
    pages = Counter(page for site in far for one in site.committed for page in one.column("page").to_pylist())
    ms = [sorted(value for one in site.committed for value in one.column("ms").to_pylist()) for site in far]
    far[1].append()  # not seen before the store falls silent
    far[1].place.server.set(Fault("403", path="flights-b/"))
    known = sorted([*ms[0], *ms[1]])
    for mode in ("quick", "accurate", "exact"):
        for answer in wh.quantile([0.1, 0.5, 0.99], mode=mode):
            assert (answer.N, answer.complete) == (len(known), False)
            assert answer.low <= known[math.ceil(answer.phi * len(known)) - 1] <= answer.high
            assert "'far 1' does not answer" in str(answer.widened)
    for how in KEY_MODES:
        for found in wh.frequency(sorted(pages)[:5], mode=how):
            assert found.lo <= pages[found.value] <= found.hi
    with pytest.raises(StoreUnavailable, match="this question is not"):
        wh.key_range("/1", "/2")
    far[1].place.server.set()
    assert sum(one.num_rows for site in far for one in site.committed) == wh.quantile(0.9).N
