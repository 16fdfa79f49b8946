"""A warehouse that does not answer: what was read of it last bounds the answers, and they say so."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.query.silenced import PHIS, WINDOWS, Silenced
from tests.query.siteworld import Sites, drawn
from tests.query.worlds import Oracle
from tidemark import query
from tidemark.query.quantiles.combined_bounds import part_of, splice
from tidemark.query.quantiles.window_bounds import WindowBounds, WindowBoundsCache
from tidemark.warehouse.errors import InputError, StoreUnavailable
from tidemark.warehouse.snapshots import sites as sites_module


@pytest.fixture(scope="module", params=["fit", "do not fit"])
def silenced(
    request: pytest.FixtureRequest, to_silence: Sites, tmp_path_factory: pytest.TempPathFactory
) -> Silenced:
    """The live rows fit into memory, or do not."""
    memory = {} if request.param == "fit" else {"memory": 1000}
    world = Silenced(to_silence.copy(tmp_path_factory.mktemp("silent")), **memory)
    world.silence()
    return world


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("mode", ["quick", "accurate", "exact"])
def test_bounds_hold_without_a_site(silenced: Silenced, mode: Any, window: dict[str, Any]) -> None:
    silenced.check(mode, window)


def test_the_others_go_on(silenced: Silenced) -> None:
    silenced.sites.stream("site 0", drawn(random.Random(8), 40), 70)
    silenced.sites.load_live("site 2")
    silenced.check("accurate", {})
    for windowed in silenced.wh.quantile([0.5], every="3d"):
        truth = Oracle.of([row["x"] for row in silenced.inside({"between": windowed.window})])
        assert windowed.low <= truth.quantile(0.5) <= windowed.high


def test_the_answer_says_what_is_missing_and_of_when(silenced: Silenced) -> None:
    answer = silenced.wh.quantile(0.5)
    told = answer.by_site()
    assert {name: one.read_at is None for name, one in told.items()} == {
        "site 0": True,
        "site 1": False,
        "site 2": True,
    }
    assert (answer.complete, told["site 1"].complete) == (False, False)
    assert told["site 1"].rows == len(silenced.sites.rows["site 1"])
    assert list(answer.as_of) == list(silenced.sites.rows)
    assert "'site 1' does not answer: bounded by what it had at 20" in str(answer.widened)
    assert "does not answer" in answer.to_json()
    assert any(one.error_bound for one in silenced.wh.quantile(PHIS))


@pytest.mark.parametrize(
    "ask",
    [
        lambda wh: wh.frequency("a"),  # nothing was read of the key
        lambda wh: wh.summary(),  # of the sums neither
        lambda wh: wh.largest(2),
        lambda wh: wh.quantile(0.5, by="g"),
        lambda wh: wh.quantile(0.5, where="x > 5"),
        lambda wh: wh.rank(5, "d"),  # of this measure nothing was read
    ],
)
def test_other_questions_are_refused(silenced: Silenced, ask: Callable[[query.Warehouse], Any]) -> None:
    with pytest.raises(
        StoreUnavailable, match=r"the warehouse 'site 1'(: the store did not answer| does not answer)"
    ):
        ask(silenced.wh)


def test_a_site_that_answers_again_is_part_again(to_silence: Sites, tmp_path: Path) -> None:
    world = Silenced(to_silence.copy(tmp_path))
    world.silence()
    assert world.wh.quantile(0.5).complete is False
    world.answer_again()
    world.sites.stream(world.name, drawn(random.Random(4), 30), 90)
    answer = world.wh.quantile(0.5, mode="exact")
    assert (answer.complete, answer.error_bound, answer.widened) == (True, 0, None)
    assert Oracle.of([row["x"] for row in world.sites.all_rows]).n == answer.N


def test_without_it_a_silent_site_is_an_error(to_silence: Sites) -> None:
    with pytest.raises(InputError, match="missing must be one of 'error', 'bounds', got 'skip'"):
        to_silence.open(missing="skip")


def _left_out(found: Any) -> Any:
    return replace(found, silent={})


def _without_silent_ranks(_: WindowBounds, points: Any) -> Any:
    return np.zeros(len(points), np.int64), np.zeros(len(points), np.int64)


def _own_alone(self: WindowBounds, section: Any, readings: Any) -> Any:
    part = part_of(self.own_live or section.live, section.values[0], section.values[-1])
    return splice(part, readings)


def _whole_runs(_: WindowBoundsCache, __: str, run: Any, ___: Any) -> Any:
    return run.run_values.bounds(None)


@pytest.mark.parametrize(
    ("place", "name", "mistake", "window"),
    [
        (sites_module, "united", None, {}),
        (WindowBounds, "silent_ranks", _without_silent_ranks, {}),
        (WindowBounds, "exact_live", _own_alone, {}),
        (WindowBoundsCache, "_unread", _whole_runs, WINDOWS[1]),
    ],
    ids=["left out", "no ranks", "no bounds", "whole runs in a window"],
)
def test_mistakes_about_silent_sites_are_caught(
    to_silence: Sites,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: Any,
    name: str,
    mistake: Any,
    window: Any,
) -> None:
    right = getattr(place, name)
    monkeypatch.setattr(place, name, mistake or (lambda *given: _left_out(right(*given))))
    world = Silenced(to_silence.copy(tmp_path))
    world.silence()
    with pytest.raises((AssertionError, ValueError, IndexError)):
        world.check("accurate", window)
