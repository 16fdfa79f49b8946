"""The answers of an alert over sites: the coordinator of the sites, each of which looks at its warehouse.

Each condition is about sums over sites (linear.py). While no site leaves its zones, it is known without
asking whether the condition holds (sketches/geometric/linear.py). This is certain for the last moment at
which all messages of sites had been taken. A site that sends nothing for a while makes the state stale.

The state of this module is in memory: a coordinator that is started again gets all of it from the sites. The
alert's state file has the notices that were told, and those that were not delivered.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from tidemark.query.alerts.alert import Look, Seen
from tidemark.query.alerts.levels import Condition
from tidemark.query.alerts.linear import LinearCondition, linear
from tidemark.query.alerts.places import (
    ASK,
    GONE,
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
from tidemark.sketches.errors import CorruptSketch
from tidemark.sketches.geometric.linear import LinearCoordinator, Zone, vector_text
from tidemark.sketches.sites.envelope import COORDINATOR, envelope_size
from tidemark.sketches.sites.machine import Message
from tidemark.warehouse.columns.ticks import now_us
from tidemark.warehouse.errors import InputError, StoreUnavailable, SystemRefused, shortened

MOST_SITES = 1_000


Outgoing = defaultdict[tuple[int, int], list[Any]]


class _Coordinated:
    """A condition at the coordinator; its messages go to `outgoing`, by site and kind.

    groups: the sums of each group. all: the sums of ALL; with groups there are none, and ALL is known once
        each site has told of all groups that it has.
    """

    def __init__(self, number: int, condition: Condition, sites: int, outgoing: Outgoing) -> None:
        self.linear: LinearCondition = linear(condition)
        self.number, self._sites, self._outgoing = number, sites, outgoing
        self._least = [one.least for one in self.linear.sums]
        self.all = self._coordinator(ALL, [] if self.linear.there else self._least)
        self.groups: dict[str, LinearCoordinator] = {} if self.linear.there else {ALL: self.all}

    def _coordinator(self, name: str, least: list[int]) -> LinearCoordinator:
        number, outgoing = self.number, self._outgoing

        def ask(site: int) -> None:
            outgoing[site, ASK].append([number, name])

        def give(site: int, zones: list[Zone]) -> None:
            outgoing[site, ZONES].append([number, name, zones])

        return LinearCoordinator(self._sites, least, ask, give)

    def receive(self, sender: int, name: str, values: Any, looks: int, peers: Iterable[int]) -> None:
        """Takes the report of a site about a group; a report of ALL without sums is about all its groups."""
        self._of(name, sender, peers).receive(sender, values, looks)
        if self.linear.there and isinstance(values, str):
            for one in self.groups.values():
                one.joined(sender)

    def _of(self, name: str, sender: int, peers: Iterable[int]) -> LinearCoordinator:
        """The sums of a group. If no site has told of it before, the others are asked for theirs."""
        if name == ALL:
            return self.all
        if not isinstance(name, str) or not self.linear.there:
            raise CorruptSketch(f"got the group {name!r:.80}; run one release of tidemark at all places")
        known = self.groups.get(name)
        if known is None:
            known = self.groups[name] = self._coordinator(name, self._least)
            for peer in peers:
                if peer != sender:
                    self._outgoing[peer, ASK].append([self.number, name])
        return known

    def joined(self, peer: int) -> None:
        """A site was started: it is asked for the groups of the others, too."""
        self.all.joined(peer)
        for name, one in self.groups.items():
            one.joined(peer)
            if name != ALL:
                self._outgoing[peer, ASK].append([self.number, name])

    @property
    def left(self) -> list[str]:
        """The groups of which no site has rows any more."""
        there = self.linear.there
        return [
            name
            for name, one in self.groups.items()
            if there and one.is_known and not any(one.reached[place] for place in there)
        ]


class _CoordinatorMachine:
    """The coordinator of all conditions, a `Machine`.

    heard: when each site's last message came, in microseconds. looks: how often each looked.
    reports: the bytes of each site's last report about each condition and group.
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
        self.reports: dict[tuple[int, int, str], int] = {}

    def receive(self, sender: int, kind: int, payload: bytes) -> list[Message]:
        self.heard[sender] = now_us()
        del kind
        conditions = list(self.coordinated.values())
        with one_release(payload) as (looks, reports):
            self.looks[sender] = max(looks, self.looks.get(sender, 0))
            for number, name, values in reports:
                conditions[number].receive(sender, name, values, looks, self.heard)
                self.reports[sender, number, name] = len(vector_text([name, values]))
        return self.taken()

    def joined(self, peer: int, *, again: bool) -> list[Message]:
        """A site gets the task; see `Machine`."""
        del again
        self.heard[peer] = now_us()
        for one in self.coordinated.values():
            one.joined(peer)
        return [said(peer, TASK, self._task), *self.taken()]

    def forget_left(self, one: _Coordinated) -> None:
        """Forgets the groups of a condition that have left; a site that has rows of one tells of it anew."""
        for name in one.left:
            del one.groups[name]
            for site in self.heard:
                self._outgoing[site, GONE].append([one.number, name])
                self.reports.pop((site, one.number, name), None)

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
            raise InputError(f"an alert has 1 to {MOST_SITES:,} sites, got {shortened(sites)}.")
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
        """Another object once a message came."""
        return (self._news,)

    def refresh(self) -> None:
        """Takes the messages that came. TidemarkError if a later coordinator runs: this one has to end."""
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
        for name, sums in one.groups.items():
            sums.watch(one.linear.needed(fires=name in fires))
        self._say()
        problem = self._problem or self._silence(now)
        if problem is None and one.all.problems:
            site, why = min(one.all.problems.items())
            problem = f"site {site}: {why}"
        if problem is not None:
            return Look({}, problem)
        if not one.all.is_known:
            return None
        self._machine.forget_left(one)
        self._say()
        waiting = {name for name, sums in one.groups.items() if not sums.is_known}
        seen = {
            name: self._seen(one.linear, name, sums, one.linear.needed(fires=name in fires))
            for name, sums in one.groups.items()
            if name not in waiting
        }
        return Look(seen, None, waiting)

    def _say(self) -> None:
        if messages := self._machine.taken():
            self._meet(lambda: self._place.say(messages))

    def _seen(self, condition: LinearCondition, name: str, sums: LinearCoordinator, needed: set[int]) -> Seen:
        verdicts = [part.verdicts(sums.reached, needed) for part in condition.parts]
        reading, words = condition.parts[0].reading(condition.sums, sums.sums)
        threshold, kept = (min(both) for both in zip(*verdicts, strict=True))
        group = None if name == ALL else json.loads(name)
        return Seen(threshold, kept, reading, group, f"{words} when all {self._sites} sites were asked")

    def traffic(self) -> dict[str, int]:
        """The messages and bytes of all places, and those of asking all sites at each of their looks."""
        looks, reports = self._machine.looks, self._machine.reports
        messages = 2 * sum(looks.values())
        envelopes = messages * envelope_size(len(self._topic.encode()))  # of messages without content
        contents = sum(looks[site] * size for (site, *_), size in reports.items())
        every = {"messages_of_asking": messages, "bytes_of_asking": envelopes + contents}
        return {**self._place.traffic, **every}

    def _turn(self) -> None:
        if self._place.turn():
            self._news = object()
        self._place.repeat_at_times(PATIENCE)

    def _meet(self, act: Callable[[], None]) -> None:
        """Does something at the exchange; a refusal of the moment becomes the problem of all conditions."""
        with exchange_errors():
            try:
                act()
            except (StoreUnavailable, SystemRefused) as error:
                self._problem = f"the exchange does not answer: {error}"
                self._news = object()

    def _silence(self, now: int) -> str | None:
        heard = self._machine.heard
        for site in range(self._sites):
            since = heard.get(site, self._began)
            if now - since > self._silent:
                return f"site {site} has said nothing for {(now - since) // 1_000_000} s"
        return None
