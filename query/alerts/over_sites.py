"""Where the answers of an alert come from if sites look at their warehouses: the coordinator of these.

Each condition is one of sums over sites (linear.py), and is known without asking while no site leaves its
zones (sketches/geometric/linear.py). What is known is certain for the last moment at which all that sites
said was taken. A site that says nothing for a while makes the state stale.

State here is in memory: a coordinator that is started again gets all of it from the sites. What it told, and
what was not delivered, is in the alert's state file.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from tidemark.query.alerts.alert import Look, Seen
from tidemark.query.alerts.levels import Condition
from tidemark.query.alerts.linear import LinearCondition, linear
from tidemark.query.alerts.places import (
    ASK,
    PATIENCE,
    TASK,
    ZONES,
    Exchange,
    exchange_errors,
    level_text,
    one_release,
    said,
)
from tidemark.query.alerts.reading import ALL
from tidemark.sketches.geometric.linear import LinearCoordinator, Zone, vector_text
from tidemark.sketches.sites.envelope import COORDINATOR, envelope_size
from tidemark.sketches.sites.machine import Message
from tidemark.warehouse.columns.ticks import now_us
from tidemark.warehouse.errors import InputError, StoreUnavailable, SystemRefused

MOST_SITES = 1_000


Outgoing = defaultdict[tuple[int, int], list[Any]]


class _Coordinated:
    """A condition at the coordinator; what it has to say goes to `outgoing`, by site and kind."""

    def __init__(self, number: int, condition: Condition, sites: int, outgoing: Outgoing) -> None:
        self.linear: LinearCondition = linear(condition)

        def ask(site: int) -> None:
            outgoing[site, ASK].append(number)

        def give(site: int, zones: list[Zone]) -> None:
            outgoing[site, ZONES].append([number, zones])

        self.coordinator = LinearCoordinator(sites, [one.least for one in self.linear.sums], ask, give)


class _CoordinatorMachine:
    """The coordinator of all conditions, a `Machine`.

    heard: when each site said something last, in microseconds. looks: how often each looked.
    reports: the bytes of what each site reported last about each condition.
    """

    def __init__(self, conditions: Iterable[Condition], sites: int, task: dict[str, Any]) -> None:
        self._outgoing: Outgoing = defaultdict(list)
        self.coordinated = {
            one.text: _Coordinated(number, one, sites, self._outgoing)
            for number, one in enumerate(conditions)
        }
        self._task = {"when": list(self.coordinated), **task}
        self.heard: dict[int, int] = {}
        self.looks: dict[int, int] = {}
        self.reports: dict[tuple[int, int], int] = {}

    def receive(self, sender: int, kind: int, payload: bytes) -> list[Message]:
        """Takes a message of a site; see `Machine`."""
        self.heard[sender] = now_us()
        del kind
        conditions = list(self.coordinated.values())
        with one_release(payload) as (looks, reports):
            self.looks[sender] = max(looks, self.looks.get(sender, 0))
            for number, values in reports:
                conditions[number].coordinator.receive(sender, values, looks)
                self.reports[sender, number] = len(vector_text(values))
        return self.taken()

    def joined(self, peer: int, *, again: bool) -> list[Message]:
        """A site gets the task; see `Machine`."""
        del again
        self.heard[peer] = now_us()
        for one in self.coordinated.values():
            one.coordinator.joined(peer)
        return [said(peer, TASK, self._task)]

    def taken(self) -> list[Message]:
        """One message of a kind to a site, about all conditions."""
        found = [said(site, kind, content) for (site, kind), content in self._outgoing.items()]
        self._outgoing.clear()
        return found


class OverSites:
    """A `Source` of answers: what sites report. lag, stale, silent: in microseconds."""

    def __init__(
        self,
        conditions: Iterable[Condition],
        sites: int,
        exchange: Exchange,
        *,
        theta: float,
        clear: Any,
        lag: int,
        stale: int | None,
        silent: int,
    ) -> None:
        if not 1 <= sites <= MOST_SITES:
            raise InputError(f"an alert has 1 to {MOST_SITES:,} sites, got {sites!r}.")
        self._sites, self._topic, self._silent, self._began = sites, exchange.topic, silent, now_us()
        task = {"theta": theta, "clear": level_text(clear), "lag": lag, "stale": stale, "beat": silent / 3e6}
        self._machine = _CoordinatorMachine(conditions, sites, task)
        self._place = exchange.place(COORDINATOR, list(range(sites)), self._machine)
        self._problem: str | None = None
        self._news: object = object()

    @property
    def identity(self) -> str:
        """The hash of the exchange's topic."""
        return hashlib.sha256(self._topic.encode()).hexdigest()

    @property
    def seen(self) -> tuple[object, ...]:
        """Another object once something came."""
        return (self._news,)

    def refresh(self) -> None:
        """Takes what came. TidemarkError if a later coordinator runs: this one has to end."""
        self._problem = None
        self._meet(self._turn)

    def begin(self) -> None:
        """See `refresh`."""
        self.refresh()

    def end(self) -> None:
        """Nothing is to be done."""

    def look(self, condition: Condition, now: int, fires: set[str]) -> Look | None:
        """See `Source`."""
        one = self._machine.coordinated[condition.text]
        coordinator, parts = one.coordinator, one.linear.parts
        needed = one.linear.needed(fires=ALL in fires)
        coordinator.watch(needed)
        self._meet(lambda: self._place.say(self._machine.taken()))
        problem = self._problem or self._silence(now)
        if problem is None and coordinator.problems:
            site, why = min(coordinator.problems.items())
            problem = f"site {site}: {why}"
        if problem is not None:
            return Look({}, problem)
        if not coordinator.is_known:
            return None
        verdicts = [part.verdicts(coordinator.reached, needed) for part in parts]
        reading, words = parts[0].reading(one.linear.sums, coordinator.sums)
        threshold, kept = (min(both) for both in zip(*verdicts, strict=True))
        reason = f"{words} when all {self._sites} sites were asked"
        return Look({ALL: Seen(threshold, kept, reading, None, reason)}, None)

    def traffic(self) -> dict[str, int]:
        """The messages and bytes of all places, and those of asking all sites at each of their looks."""
        looks, reports = self._machine.looks, self._machine.reports
        messages = 2 * sum(looks.values())
        envelopes = messages * envelope_size(len(self._topic.encode()))  # of messages without content
        contents = sum(looks[site] * size for (site, _), size in reports.items())
        every = {"messages_of_asking": messages, "bytes_of_asking": envelopes + contents}
        return {**self._place.traffic, **every}

    def _turn(self) -> None:
        if self._place.turn():
            self._news = object()
        self._place.repeat_at_times(PATIENCE)

    def _meet(self, act: Callable[[], None]) -> None:
        """Does something at the exchange; what it refuses for the moment is the problem of all conditions."""
        with exchange_errors():
            try:
                act()
            except (StoreUnavailable, SystemRefused) as error:
                self._problem = f"the exchange does not answer: {error}"
                self._news = object()

    def _silence(self, now: int) -> str | None:
        """Which site has said nothing for too long."""
        heard = self._machine.heard
        for site in range(self._sites):
            since = heard.get(site, self._began)
            if now - since > self._silent:
                return f"site {site} has said nothing for {(now - since) // 1_000_000} s"
        return None
