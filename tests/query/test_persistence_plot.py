"""The figure of persistence: a bar for each slot in which a key is, and a lighter one where it may be."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, cast

import pytest
from matplotlib import dates
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from tests.warehouse.keyworld import DAY_US, KeyWorld
from tidemark import query
from tidemark.query import InputError

HALF = DAY_US // 2


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> query.Warehouse:
    """Key a on days 0 to 2, key b on days 1 and 4, and live rows on day 6."""
    world = KeyWorld(tmp_path_factory.mktemp("presence") / "w", kappa=9)
    world.load([("a", 0), ("a", 1), ("b", 1)])
    world.load([("a", 1), ("a", 2), ("b", 4)])
    world.stream([("a", 6 * DAY_US), ("b", 6 * DAY_US + HALF)])
    return query.open(world.uri)


to_days: Callable[[datetime], float] = dates.date2num  # published without types


def bars(axes: Any) -> dict[str, list[tuple[int, float, float]]]:
    """By label: the row, the first and the last day of each bar."""
    return {
        str(container.get_label()): sorted(
            (round(bar.get_y() + bar.get_height() / 2), bar.get_x(), bar.get_x() + bar.get_width())
            for bar in container
        )
        for container in cast("list[BarContainer]", axes.containers)
    }


def expected(answers: Any, field: str) -> list[tuple[int, float, float]]:
    """The slots of the answers in days since 1970."""
    return sorted(
        (row, to_days(start), to_days(end))
        for row, answer in enumerate(answers)
        for start, end in getattr(answer, field)
    )


@pytest.mark.parametrize("slot", [None, "2d"])
@pytest.mark.parametrize(
    "between", [None, ("1970-01-01T12:00", "1970-01-06"), ("1970-01-02", "1970-01-07T06:00")]
)
def test_bars_are_the_slots_of_the_answers(wh: query.Warehouse, slot: Any, between: Any) -> None:
    answers = wh.persistence(["a", "b"], slot=slot, between=between)
    axes = wh.plot.persistence(["a", "b"], slot=slot, between=between, ax=Figure().add_subplot())
    drawn = bars(axes)
    assert drawn.get("present", []) == expected(answers, "present")
    assert drawn.get("may be present", []) == expected(answers, "maybe")
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == [f"{one.value}  {one.slots}/{one.window_slots}" for one in answers]


def test_without_keys_the_most_frequent_are_drawn(wh: query.Warehouse) -> None:
    axes = wh.plot.persistence(top=1, ax=Figure().add_subplot())
    assert [label.get_text().split()[0] for label in axes.get_yticklabels()] == ["a"]


def test_what_cannot_be_drawn_is_refused(wh: query.Warehouse) -> None:
    with pytest.raises(InputError, match="a figure shows"):
        wh.plot.persistence([f"key {i}" for i in range(1000)])
    with pytest.raises(InputError, match="slot"):
        wh.plot.persistence("a", slot="36h")
    with pytest.raises(InputError, match="at least 1"):
        wh.plot.persistence(top=0)
