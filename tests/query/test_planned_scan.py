"""What a scan of all keys is to read is told before it is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.query.siteworld import DAY, FIRST, Sites
from tidemark import query
from tidemark.query.keys import key_relation, key_scan, planned_scan
from tidemark.query.reading.block_reader import BlockReader
from tidemark.query.reading.costs import Rates
from tidemark.warehouse.columns.ticks import ALL_TIME
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.snapshots import sites as sites_module
from tidemark.warehouse.snapshots import views

CUT = {"between": (FIRST + DAY / 3, FIRST + 5 * DAY / 2)}  # inside ticks
WINDOWS: list[dict[str, Any]] = [{}, {"last": "2d"}, {"between": (FIRST, FIRST + 5 * DAY)}, CUT]
SOURCES = {"runs": Rates(key_row=0.0), "events": Rates(event_key_row=0.0)}  # what each makes the cheaper one


def asked(sites: Sites, source: str) -> list[query.Warehouse]:
    """All sites together, and one of them; nothing is in memory."""
    opened = [sites.open(), query.open(sites.uris["site 0"])]
    for wh in opened:
        wh._session.costs.rates = SOURCES[source]
    return opened


def agree(sites: Sites, source: str) -> None:
    """The plan is what `self_join` reads then, and an exact number of keys reads no more."""
    for window in WINDOWS:
        for before, wh, other in zip(*(asked(sites, source) for _ in range(3)), strict=True):
            before.self_join(**window)  # compares the files with their digests, once in a process
            plan, read = wh.scan_plan(**window), wh.self_join(**window).plan
            assert read is not None
            assert (plan.way, plan.files, plan.blocks) == ("scan", read.files, read.blocks)
            assert 0 < read.bytes <= plan.bytes
            assert source == "events" or read.bytes == plan.bytes
            assert plan.rows == read.rows or (read.rows < plan.rows and window == CUT)
            distinct = other.distinct(mode="exact", **window).plan
            assert distinct is not None
            assert distinct.bytes <= plan.bytes


@pytest.mark.parametrize("source", SOURCES)
def test_the_plan_is_what_is_read_then(two_sites: Sites, source: str) -> None:
    agree(two_sites, source)


def test_the_plan_of_sites_is_the_sum_of_theirs(two_sites: Sites) -> None:
    for source, rates in SOURCES.items():
        sites, _ = asked(two_sites, source)
        alone = [query.open(uri) for uri in two_sites.uris.values()]
        for wh in alone:
            wh._session.costs.rates = rates
        for name in ("files", "blocks", "rows", "bytes"):
            own = [getattr(wh.scan_plan(), name) for wh in alone]
            assert getattr(sites.scan_plan(), name) == sum(own)


@pytest.mark.parametrize("source", SOURCES)
def test_nothing_is_read_for_a_plan(two_sites: Sites, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("something is read")

    opened = asked(two_sites, source)
    for place, name in (
        (BlockReader, "read"),
        (BlockReader, "footer"),
        (key_relation, "checked_file"),
        (key_scan, "database"),
    ):
        monkeypatch.setattr(place, name, refuse)
    for wh in opened:
        for window in WINDOWS:
            wh.scan_plan(**window)


def test_a_window_has_less_to_read(two_sites: Sites) -> None:
    wh, _ = asked(two_sites, "runs")
    late = wh.scan_plan(between=(FIRST + 100 * DAY, None))
    assert (late.files, late.blocks, late.bytes) == (0, 0, 0)
    with pytest.raises(InputError, match="scan_plan"):
        wh.scan_plan(every="1d")  # type: ignore[call-arg]


def _of_one_site(found: Any) -> Any:
    return replace(found, runs=found.parts[0].runs)


def _of_all_time(right: Callable[..., Any]) -> Callable[..., Any]:
    def answers(self: Any, questions: Any) -> Any:
        (question,) = questions
        everything = replace(question.window, whole=ALL_TIME, partial_ticks=())
        return right(self, [replace(question, window=everything)])

    return answers


def _without_live_rows(right: Callable[..., Any]) -> Callable[..., Any]:
    def answers(self: Any, questions: Any) -> Any:
        (question,) = questions
        plan = right(self, questions)
        plan.rows -= sum(question.view.live_counts.values())
        return plan

    return answers


@pytest.mark.parametrize("mistake", [_of_all_time, _without_live_rows])
def test_a_plan_of_other_rows_is_caught(
    two_sites: Sites, monkeypatch: pytest.MonkeyPatch, mistake: Callable[..., Any]
) -> None:
    right = planned_scan.PlannedScan.answers
    monkeypatch.setattr(planned_scan.PlannedScan, "answers", mistake(right))

    def both() -> None:
        agree(two_sites, "runs")
        test_a_window_has_less_to_read(two_sites)

    with pytest.raises(AssertionError):
        both()


def test_a_plan_that_leaves_out_a_site_is_caught(two_sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    right = views.united
    monkeypatch.setattr(sites_module, "united", lambda *given: _of_one_site(right(*given)))
    with pytest.raises(AssertionError):
        test_the_plan_of_sites_is_the_sum_of_theirs(two_sites)
