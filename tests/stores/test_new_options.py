"""A reader of a store finds new options in the round in which it looks for newer data."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.stores.conftest import Place
from tests.stores.filled import Filled
from tidemark import query, warehouse


def test_an_open_reader_sees_what_alter_added(place: Place, filled: Filled) -> None:
    """With its next question, as a new reader. A question after nothing new takes one round."""
    name = "page"
    ask: dict[str, Callable[[query.Warehouse], object]] = {
        "by": lambda wh: [one.rows_scanned for one in wh.quantile(0.5, by=name, top=2)],
        "key": lambda wh: wh.top(1, key=[name, "ms"])[0].count,
        "pinned": lambda wh: wh.pinned().top(1, key=[name, "ms"])[0].count,
        "keys": lambda wh: [key.name for key in wh.keys],
    }
    before = {form: filled.open() for form in ask}
    for wh in before.values():
        wh.quantile(0.5)
    warehouse.alter(None, place.uri, add_key=[name, "ms"], add_group=name, **filled.how)
    for form, question in ask.items():
        assert question(before[form]) == question(filled.open())
    assert filled.rounds_of(lambda: before["by"].quantile(0.5)) <= 3
    assert filled.rounds_of(lambda: before["by"].quantile(0.5)) == 1


def test_an_open_reader_follows_measures_that_come_and_go(place: Place, filled: Filled) -> None:
    reader = filled.open()
    values, there = (
        [filled.open().quantile(phi, "ms").value for phi in (0, 0.5, 1)],
        reader.quantile(0.5, "ms").N,
    )
    warehouse.alter(None, place.uri, add_measure="at", **filled.how)
    assert there == reader.quantile(0.5, "at", mode="exact").N
    warehouse.alter(None, place.uri, drop_measure="ms", kappa=4, **filled.how)
    with pytest.raises(warehouse.InputError, match="no measure 'ms' here"):
        reader.quantile(0.5, "ms")
    assert reader.quantile(0.5, mode="exact").measure == "at"
    warehouse.maintain(None, place.uri, grace="0 s", **filled.how)
    assert there == reader.quantile(0.5, mode="exact").N
    warehouse.alter(None, place.uri, add_measure="ms", **filled.how)
    assert [reader.quantile(phi, "ms").value for phi in (0, 0.5, 1)] == values
    assert warehouse.verify(place.uri, storage_options=filled.how.get("storage_options")).ok
