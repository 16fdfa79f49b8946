"""Over several warehouses, groups are chosen and keys are counted by the rows of all of them together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.query.siteworld import FIRST, Sites, of_keys
from tidemark import query
from tidemark.query.answers.distinct_answers import KeyNumber
from tidemark.query.keys import distinct_keys
from tidemark.sketches.sampling import SampleSize
from tidemark.warehouse.projections import distinct_marks

# No site has more rows of `both` than of its own group, and together they have the most.
GROUPS = {"here": "both both both here here here here", "there": "both both both there there there there"}
KEYS = {"here": range(40), "there": range(15, 60)}


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Sites:
    """Two sites that share a group."""
    return of_keys(tmp_path_factory.mktemp("groups"), {name: text.split() for name, text in GROUPS.items()})


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Sites:
    """Two sites that share keys; each knows how many it has, and a few of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distinct_marks, "RUN_SAMPLE", SampleSize(4, 8))
        named = {name: [f"key {number}" for number in numbers] for name, numbers in KEYS.items()}
        return of_keys(tmp_path_factory.mktemp("keys"), named)


@pytest.mark.parametrize("by", ["g", "k"], ids=["declared", "scanned"])
def test_groups_are_chosen_by_the_rows_of_all_sites(groups: Sites, by: str) -> None:
    rows = Counter(row[by] for row in groups.all_rows)
    wh = groups.open()
    windows: list[dict[str, Any]] = [{}, {"between": (FIRST, None)}]
    for window in windows:
        enough = wh.quantile(0.5, by=by, least_rows=5, **window)
        assert {(one.group or {})[by]: one.N for one in enough} == {"both": rows["both"]}
        for order in (None, "-rows"):
            first = wh.quantile(0.5, by=by, top=1, order=order, **window)
            assert [((one.group or {})[by], one.N) for one in first] == rows.most_common(1)


@pytest.mark.parametrize("window", [{}, {"between": (FIRST, None)}], ids=["all rows", "a window"])
def test_numbers_of_keys_of_sites_are_bounds(keys: Sites, window: dict[str, Any]) -> None:
    """The greatest of the sites' numbers and their sum are certain, and neither is the value."""
    numbers = [len(numbers) for numbers in KEYS.values()]
    truth = len({row["k"] for row in keys.all_rows})
    found = keys.open().distinct(**window)
    assert max(numbers) <= found.least < truth < found.most <= sum(numbers)
    assert found.least <= found.lo <= found.count <= found.hi <= found.most
    exact = keys.open().distinct(mode="exact", **window)
    assert (exact.least, exact.count, exact.most) == (truth, truth, truth)


def _chosen_by_site(sites: Sites) -> Callable[..., Any]:
    """Asks each site for its groups, and all sites about those that any of them answered."""
    right = query.Warehouse.quantile

    def quantile(wh: query.Warehouse, phi: Any, *, by: str, **options: Any) -> Any:
        own = (right(query.open(uri), phi, by=by, **options) for uri in sites.uris.values())
        chosen = dict.fromkeys((one.group or {})[by] for answers in own for one in answers)
        return right(wh, phi, by=by, groups=list(chosen))[: options.get("top")]

    return quantile


def test_groups_that_each_site_chooses_alone_are_caught(
    groups: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`least_rows` drops the group that only all sites have enough rows of; `top` misses it."""
    quantile = _chosen_by_site(groups)
    wh = groups.open()
    assert not [one.group for one in quantile(wh, 0.5, by="g", least_rows=5)]
    assert [one.group for one in quantile(wh, 0.5, by="g", top=1)] == [{"g": "here"}]
    monkeypatch.setattr(query.Warehouse, "quantile", quantile)
    for by in ("g", "k"):
        with pytest.raises(AssertionError):
            test_groups_are_chosen_by_the_rows_of_all_sites(groups, by)


def test_a_sum_of_the_numbers_of_keys_of_sites_is_caught(
    keys: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    def summed(found: Any, delta: float) -> KeyNumber:  # noqa: ARG001
        return KeyNumber(*[sum(base.keys for base in found.exact)] * 5)

    monkeypatch.setattr(distinct_keys, "estimate_distinct", summed)
    assert keys.open().distinct().count == sum(len(numbers) for numbers in KEYS.values())
    with pytest.raises(AssertionError):
        test_numbers_of_keys_of_sites_are_bounds(keys, {})
