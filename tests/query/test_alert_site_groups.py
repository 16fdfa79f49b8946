"""Alerts by group over sites: groups that come, cross thresholds, leave, and outlive restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.query.test_alert_sites import Lab, by_group, clock
from tidemark import query
from tidemark.query.alerts.alert import Alert, Look
from tidemark.query.alerts.at_site import AlertSite, _SiteMachine
from tidemark.query.alerts.over_sites import OverSites, _Coordinated
from tidemark.query.alerts.places import GONE, TASK, ZONES, said
from tidemark.sketches.sites.envelope import COORDINATOR
from tidemark.warehouse.errors import TidemarkError

__all__ = ["clock"]
WHEN = "count(measure='ms', last='10m', by='o') >= 6"


def now(alert: Alert) -> dict[str, str]:
    return {one.group["o"]: one.state for one in alert.states if one.group is not None}


def watched(lab: Lab, alert: Alert) -> list[int]:
    """How many groups the coordinator and each site watch."""
    source = alert._source
    assert isinstance(source, OverSites)
    (at_coordinator,) = source._machine.coordinated.values()
    sites = [site for site in lab.sites if isinstance(site, AlertSite)]
    return [len(at_coordinator.groups), *(len(one._machine.watched[0].names) for one in sites)]


def come_and_leave(folder: Path, lab: Lab) -> None:
    """Groups at both sites, at one, and below the threshold; after restarts; until none is left."""
    options: dict[str, Any] = {"stale": "1d", "state": folder / "state", "silent": "1h"}
    for site in range(2):
        lab.get(site, [1.0], None)  # of no group
    alert = lab.alert(WHEN, **options)
    assert lab.quiet(alert) == []
    for site, rows, origin in ((0, 4, "a"), (1, 4, "a"), (1, 6, "b"), (0, 2, "c")):
        lab.get(site, [1.0] * rows, origin)
    found = lab.quiet(alert)
    assert by_group(found) == [(WHEN, "{'o': 'a'}", "certain"), (WHEN, "{'o': 'b'}", "certain")]
    assert {one.low for one in found} == {8, 6}
    assert now(alert) == {"a": "certain", "b": "certain", "c": "clear"}
    assert watched(lab, alert) == [3, 3, 3]
    lab.get(1, [1.0], "c")
    lab.get(1, [1.0], "d")
    assert lab.quiet(alert) == []
    assert now(alert)["d"] == "clear"
    # Whoever is started anew gets the groups of the others.
    lab.start(0)
    assert lab.quiet(alert) == []
    assert watched(lab, alert) == [4, 4, 4]
    lab.get(0, [1.0] * 3, "c")
    assert by_group(lab.quiet(alert)) == [(WHEN, "{'o': 'c'}", "certain")]
    alert.close()
    alert = query.alert(WHEN, sites=2, exchange=lab.exchange, **options)
    assert lab.quiet(alert) == []
    assert now(alert) == {"a": "certain", "b": "certain", "c": "certain", "d": "clear"}
    # They leave the window, each once, and nobody watches them any more.
    lab.clock.wait(minutes=5)
    lab.get(0, [1.0] * 7, "a")
    lab.quiet(alert)
    lab.clock.wait(minutes=7)
    assert by_group(lab.quiet(alert)) == [(WHEN, f"{{'o': '{one}'}}", "clear") for one in "bc"]
    lab.clock.wait(minutes=12)
    assert by_group(lab.quiet(alert)) == [(WHEN, "{'o': 'a'}", "clear")]
    lab.quiet(alert)
    assert (now(alert), watched(lab, alert)) == ({}, [0, 0, 0])
    lab.get(0, [1.0] * 6, "b")
    assert by_group(lab.quiet(alert)) == [(WHEN, "{'o': 'b'}", "certain")]
    alert.close()


def test_groups_come_cross_the_threshold_and_leave(tmp_path: Path, clock: Any) -> None:
    come_and_leave(tmp_path, Lab(tmp_path, 2, clock))


def test_a_question_that_fails_makes_all_groups_stale(tmp_path: Path, clock: Any) -> None:
    lab = Lab(tmp_path, 2, clock)
    lab.get(0, [1.0] * 6)
    lab.get(1, [1.0])
    alert = lab.alert(WHEN, "quantile(0.5, measure='none', by='o') > 1")
    lab.quiet(alert)
    clock.wait(minutes=11)
    assert {one.state for one in lab.quiet(alert)} == {"stale"}
    assert [one.group for one in alert.states] == [{"o": "a"}, None]
    assert "site 0: no new rows" in alert.states[0].reason
    lab.get(0, [1.0] * 6, "b")
    lab.get(1, [1.0])
    changed = {(str(one.group), one.previous, one.state) for one in lab.quiet(alert)}
    assert changed == {("{'o': 'a'}", "stale", "clear"), ("{'o': 'b'}", "clear", "certain")}


def test_groups_without_numbers_hold_no_condition_about_values(tmp_path: Path, clock: Any) -> None:
    """As the alert that asks all sites says."""
    whens = [
        "quantile(0.5, measure='ms', by='o') < 10",
        "cdf(60, measure='ms', by='o') < 0.9",
        "burn(60, 0.9, measure='ms', by='o') > 1",
        "rank(60, measure='ms', by='o') < 3",
        "quantile(0.5, measure='ms', by='o', groups=['a', 'z']) < 10",
    ]
    lab = Lab(tmp_path, 2, clock)
    lab.get(0, [1.0, 100.0])
    lab.get(1, [1.0])
    lab.get(1, [None] * 3, "none")
    options: dict[str, Any] = {"stale": "1d", "theta": 0}
    found = {one for one in by_group(lab.quiet(lab.alert(*whens, **options))) if one[2] == "certain"}
    a = "{'o': 'a'}"
    assert found == {(when, a, "certain") for when in whens} | {(whens[3], "{'o': 'none'}", "certain")}
    assert found == {one for one in by_group(lab.asking(*whens, **options).check()) if one[2] == "certain"}


def leave_as_if_all_were_asked(folder: Path, clock: Any) -> None:
    """Groups that fire, are clear or stale lose their rows, as in one check of an alert that asks all."""
    lab = Lab(folder, 2, clock)
    options: dict[str, Any] = {"stale": "10m"}
    for site, rows, origin in ((0, 6, "a"), (1, 2, "b"), (0, 3, "c"), (1, 3, "c")):
        lab.get(site, [1.0] * rows, origin)
    alert, asking = lab.alert(WHEN, **options), lab.asking(WHEN, **options)
    for minutes, found in (
        (0, {"a": "certain", "b": "clear", "c": "certain", "d": "clear"}),
        (6, {"a": "certain", "b": "clear", "c": "certain", "d": "clear"}),
        (6, {"d": "clear"}),
        (11, {"d": "stale"}),
        (0, {"d": "clear"}),
    ):
        clock.wait(minutes=minutes)
        for site in range(2) if minutes < 10 else ():
            lab.get(site, [1.0], "d")
        assert by_group(lab.quiet(alert)) == by_group(asking.check())
        assert by_group(alert.states) == by_group(asking.states)
        assert now(alert) == found


def test_a_group_leaves_at_the_check_at_which_an_alert_that_asks_all_drops_it(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_as_if_all_were_asked(tmp_path / "right", clock)
    monkeypatch.setattr(_Coordinated, "left", [])
    with pytest.raises(AssertionError):
        leave_as_if_all_were_asked(tmp_path / "wrong", clock)


def test_zones_of_a_group_that_was_forgotten_ask_for_its_numbers() -> None:
    machine = _SiteMachine()
    task = {"when": [WHEN], "theta": 0.0, "clear": None, "lag": 0, "stale": None, "beat": 1.0}
    for kind, content in ((TASK, task), (GONE, [[0, "b"]]), (ZONES, [[0, "b", []]])):
        machine.receive(COORDINATOR, kind, said(COORDINATOR, kind, content).payload)
    (watched,) = machine.watched
    assert watched.groups["b"].must_report([0, 0])


def no_other_site_is_asked(self: _Coordinated, name: str, sender: int, _: Any) -> Any:
    return OF(self, name, sender, ())


def what_waits_has_left(seen: Any, problem: Any, _: Any = ()) -> Look:
    return Look(seen, problem)


def a_site_that_begins_is_asked_nothing(self: _Coordinated, peer: int) -> None:
    self.all.joined(peer)
    for one in self.groups.values():
        one.joined(peer)


OF = _Coordinated._of
MISTAKES: dict[str, Any] = {
    "no other site is asked": (_Coordinated, "_of", no_other_site_is_asked),
    "groups that wait have left": ("tidemark.query.alerts.over_sites.Look", what_waits_has_left),
    "a site that begins is asked nothing": (_Coordinated, "joined", a_site_that_begins_is_asked_nothing),
    "groups are kept for ever": (_Coordinated, "left", []),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught(
    mistake: str, tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*MISTAKES[mistake])
    with pytest.raises((AssertionError, TidemarkError)):
        come_and_leave(tmp_path, Lab(tmp_path, 2, clock))
