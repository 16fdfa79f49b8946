"""A given value is compared with the stored ones exactly, whatever its type and form, in every question.

The truth is a plain list of the stored values, compared by Python's own exact numbers.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from tests.query.answers import several
from tests.query.given_forms import MEASURES, STORED, Given, drawn
from tests.query.typed_world import GROUPS, exact_rows, make
from tidemark import query
from tidemark.query import Warehouse
from tidemark.warehouse.columns import given_values, keys, value_encoding
from tidemark.warehouse.errors import EmptyWindow, InputError

GIVEN = int(os.environ.get("TIDEMARK_SOAK_VALUES", "25"))  # given values of a column


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    return query.open(make(tmp_path_factory.mktemp("comparisons")))


def givens(name: str) -> list[Given]:
    return list(drawn(name, Random(f"given {name}"), GIVEN))


def count_where(wh: Warehouse, where: Any) -> int:
    try:
        return wh.quantile(1, "i8", where=where, mode="exact").N
    except EmptyWindow:
        return 0


def check_keys(wh: Warehouse, name: str) -> None:
    """Counts of keys, ranges, and conditions by equality, of a declared group and of a scan."""
    stored, given = exact_rows(name), givens(name)
    found = several(wh.frequency([one.form for one in given], key=name, mode="exact"))
    for one, answer in zip(given, found, strict=True):
        equal = sum(value == one.exact for value in stored)
        less = sum(value < one.exact for value in stored)
        assert answer.count == equal, one
        assert wh.key_range(None, one.form, key=name).count == less, one
        assert wh.key_range(one.form, None, key=name).count == len(stored) - less, one
        if name in GROUPS:
            assert count_where(wh, {name: one.form}) == equal, one
    for one in given[:4] if name != "i64" else ():  # scans of events
        both = sum(v == one.exact and i == 0 for v, i in zip(stored, exact_rows("i64"), strict=True))
        assert count_where(wh, {"i64": 0, name: [one.form]}) == both, one


def check_measures(wh: Warehouse, name: str) -> None:
    """Ranks, shares and bins."""
    stored, given = exact_rows(name), givens(name)
    points = [one.form for one in given]
    ranks, shares = (several(ask(points, name, mode="exact")) for ask in (wh.rank, wh.cdf))
    least, most = min(given, key=lambda one: one.exact), max(given, key=lambda one: one.exact)
    for one, rank, share in zip(given, ranks, shares, strict=True):
        not_above = sum(value <= one.exact for value in stored)
        assert rank.rank == not_above, one
        assert share.cdf == not_above / len(stored), one
        bins = wh.histogram([least.form, one.form, most.form], name, mode="exact").bins
        first = sum(least.exact <= value < one.exact for value in stored)
        last = sum(one.exact <= value <= most.exact for value in stored)
        assert [bin_.count for bin_ in bins] == [first, last], one
        if one.exact < most.exact:
            with pytest.raises(InputError, match="edges must ascend"):
                wh.histogram([most.form, one.form], name)


@pytest.mark.parametrize("name", STORED)
def test_random_values_are_compared_with_keys_exactly(wh: Warehouse, name: str) -> None:
    check_keys(wh, name)


@pytest.mark.parametrize("name", MEASURES)
def test_random_values_are_compared_with_measures_exactly(wh: Warehouse, name: str) -> None:
    check_measures(wh, name)


def floored(kind: Any, exact: Any) -> Any:
    """A mistake: a value between two stored ones is taken for the lower one."""
    found = given_values.standing(kind, exact)
    return found if found.at is None else replace(found, equal=True)


@pytest.mark.parametrize(
    ("check", "name"),
    [(check_keys, "day"), (check_keys, "i32"), (check_measures, "ts"), (check_measures, "d10")],
)
def test_a_value_that_is_floored_is_caught(
    wh: Warehouse, monkeypatch: pytest.MonkeyPatch, check: Callable[[Warehouse, str], None], name: str
) -> None:
    for module in (keys, value_encoding):
        monkeypatch.setattr(module, "standing", floored)
    monkeypatch.setattr("tidemark.query.quantiles.histograms.standing", floored)
    with pytest.raises(AssertionError):
        check(wh, name)
