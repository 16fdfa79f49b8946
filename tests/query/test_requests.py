"""A question has its parameters in one place; what is wanted of many groups is found together."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from tests.query.groupworld import GroupWorld
from tidemark import query
from tidemark.query.asking.key_questions import KeyGroupOptions, KeyRequest
from tidemark.query.asking.measure_arguments import GroupOptions
from tidemark.query.asking.measure_questions import MeasureRequest
from tidemark.query.reader import Reader
from tidemark.query.scans import event_scan, grouped_rows
from tidemark.query.scans.event_scan import EventScan

HOUR = timedelta(hours=1)
START = datetime(2024, 1, 1, tzinfo=UTC)
ROWS: list[Any] = [
    (START + i % 4 * HOUR, "ab"[i % 2], i % 3, float(i * 7 % 23) if i % 11 else None, None) for i in range(90)
]


def parameters(method: Any, *without: str) -> list[str]:
    return [name for name in inspect.signature(method).parameters if name not in without]


def options_fit(request: Any, options: Any, *own: str) -> bool:
    return set(parameters(request, *own)) == set(get_type_hints(options))


def test_typed_options_are_the_parameters_of_the_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant has a parameter that the types do not know."""
    assert options_fit(MeasureRequest.of, GroupOptions, "wanted", "measure")
    assert options_fit(KeyRequest.of, KeyGroupOptions, "wanted")
    monkeypatch.setattr(KeyRequest, "of", lambda wanted, *, key=None, newer=None: (wanted, key, newer))
    assert not options_fit(KeyRequest.of, KeyGroupOptions, "wanted")


def test_methods_and_functions_show_the_parameters_of_the_request() -> None:
    of_measure, of_key = (
        parameters(MeasureRequest.of, "wanted", "measure"),
        parameters(KeyRequest.of, "wanted"),
    )
    assert parameters(Reader.quantile) == ["self", "phi", "measure", *of_measure]
    assert parameters(Reader.top) == ["self", "k", *of_key]
    for alone in (Reader.persistent, Reader.persistence, Reader.inner_product):
        assert "every" not in parameters(alone)
    assert inspect.signature(Reader.rank).parameters["mode"].default == "accurate"
    for name in query.__all__:
        method = getattr(query.Warehouse, name, None)
        if inspect.isfunction(method):
            assert parameters(getattr(query, name)) == parameters(method, "self"), name
    assert {"key_range", "self_join"} < set(query.__all__)


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("is_broken", [False, True])
def test_one_scan_finds_the_values_of_all_groups_and_then_their_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: bool, is_broken: bool
) -> None:
    """Few statements, however many groups, windows and quantiles; one where the rows fit into memory.

    The broken variants hold no rows, and ask for ranks one by one.
    """
    wh, asked = GroupWorld.of(tmp_path, [(True, ROWS[:60]), (False, ROWS[60:])]).open(), Counter[str]()
    for name in ("rows", "columns"):
        real = getattr(EventScan, name)

        def counted(scan: EventScan, statement: str, real: Any = real) -> Any:
            asked["statements"] += 1
            return real(scan, statement)

        monkeypatch.setattr(EventScan, name, counted)
    if not held or is_broken:
        monkeypatch.setattr(event_scan, "most_held", lambda *_: 0)
    if not held and is_broken:
        monkeypatch.setattr(grouped_rows, "POINTS", 1)
    options: dict[str, Any] = {"where": "number >= 0", "by": "origin", "every": "1h"}
    kept_and_counted = 3
    asks: list[tuple[Callable[[], Any], int]] = [(lambda: wh.rank([1.0, 5.0], "value", **options), 1)]
    if not is_broken:
        asks += [
            (lambda: wh.histogram(4, "value", **options), 2),
            (lambda: wh.quantile([0.1, 0.5, 1], "value", **options), 1),
        ]
    for ask, more in asks:
        asked.clear()
        assert len(ask()) > 1
        assert (asked["statements"] == (1 if held else kept_and_counted + more)) != is_broken


def test_blocks_that_found_a_group_are_counted_once(tmp_path: Path) -> None:
    world = GroupWorld.of(tmp_path, [(True, ROWS)])
    shares, ranks = (
        ask(world.open(), 5.0, "value", where={"origin": "a"}) for ask in (query.Warehouse.cdf, Reader.rank)
    )
    assert shares.blocks_read == ranks.blocks_read > 0


def test_questions_about_one_window_refuse_windows(tmp_path: Path) -> None:
    wh: Any = GroupWorld.of(tmp_path, [(True, ROWS)]).open()
    asks: list[Callable[[], Any]] = [
        lambda: wh.persistent(0.5, every="1h"),
        lambda: wh.persistence("a", every="1h"),
        lambda: wh.inner_product(wh, every="1h"),
        lambda: wh.top(3, wanted=1),
        lambda: wh.rank(1, "value", wanted=1),
    ]
    for ask in asks:
        with pytest.raises(query.InputError, match=r"unexpected keyword argument '(every|wanted)'"):
            ask()
