"""Geometric monitoring after Papapetrou, Garofalakis and Deligiannakis (2015), section 7.3.2 and figure 8.

Their traces, wc98 and caida, are not ours. `steady` is a Zipf stream that does not change, as wc98 hardly
does; in `drift` other keys become frequent four times a window, and the law becomes flatter and steeper.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from time import process_time

import numpy as np
from numpy.typing import NDArray

from bench.cases import outcomes
from bench.plots import Panel, Series, plot_panels
from bench.report import Section, number, say, table
from tidemark.sketches.geometric.monitoring import Monitoring
from tidemark.sketches.geometric.queries import Frequent, Query, SelfJoin
from tidemark.sketches.hashing.row_hashes import splitmix

EPS = DELTA = THETA = 0.15
KEYS, KEY_BYTES, SWINGS = 50_000, 8, 4
SLICES = 100  # of a window: after each, errors are looked at
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured. rows: of a site and window, where nothing else is said."""

    rows: int = 16_000
    sites: tuple[int, ...] = (2, 8, 32, 256)
    thetas: tuple[float, ...] = (0.05, 0.1, 0.15, 0.3)
    all_rows: tuple[int, ...] = (1_000, 4_000, 16_000, 32_000)
    at: int = 16
    by_norms: int = 32  # sites at most, where the zones of the paper are measured
    at_once: int = 2  # processes


QUICK = Sizes(200, (2,), (THETA,), (200,), 2, at_once=1)


@dataclass(frozen=True, slots=True)
class Case:
    """One run over two windows, of which the second is measured.

    asked: "self-join", "frequent" or "both".
    """

    sites: int
    rows: int
    theta: float = THETA
    drifts: bool = False
    by_norms: bool = False
    asked: str = "self-join"

    def queries(self) -> list[Query]:
        """What is monitored; the self-join, if it is, comes first."""
        window = self.sites * self.rows
        found: list[Query] = []
        if self.asked != "frequent":
            found.append(SelfJoin(theta=self.theta, window=window, by_norms=self.by_norms))
        if self.asked != "self-join":
            found.append(Frequent(threshold=window / 20, theta=self.theta, window=window))
        return found


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the second window took.

    arrivals, payload, messages, envelope: sent for them. first, second: phases. error, worst: of the answer
    against f of the merged vectors, mean and largest; true_error: against the exact self-join, mean, as a
    share of the squared number of arrivals.
    every, periodic: a site that sent its counters after each `every` share of a window would have the same
    mean error, and send so many bytes. seconds: of the processor, for both windows.
    """

    arrivals: int
    payload: int
    messages: int
    envelope: int
    first: int
    second: int
    error: float
    worst: float
    true_error: float
    every: float
    periodic: float
    seconds: float

    @property
    def ratio(self) -> float:
        """The bytes of payload for one byte of sending each arrival."""
        return self.payload / (KEY_BYTES * self.arrivals)


def ids(case: Case, part: int, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The keys of a slice, as numbers from 0 on."""
    phase = part / SLICES
    skew = 1.05 + 0.15 * np.sin(2 * np.pi * phase) if case.drifts else 1.05
    weights = np.cumsum(1 / np.arange(1, KEYS + 1) ** skew)
    epoch = int(phase * SWINGS) if case.drifts else 0
    drawn = np.searchsorted(weights / weights[-1], rng.random(size)).astype(np.int64)
    return np.minimum(drawn, KEYS - 1) + epoch * KEYS


def measure(case: Case) -> Outcome:
    """Runs one case; the guarantee is asserted after each slice."""
    queries, size = case.queries(), case.sites * case.rows // SLICES
    monitoring, rng = Monitoring(queries, case.sites, eps=EPS, delta=DELTA, seed=1), np.random.default_rng(1)
    parts, errors, true_errors, values, sizes = [], [], [], [], []
    counts = np.zeros(KEYS * 2 * SWINGS, np.int64)
    began, before = process_time(), (monitoring.channel.sent.payload, 0, 0, 0, 0)
    for part in range(2 * SLICES):
        parts.append(ids(case, part, size, rng))
        times = np.arange(part * size, (part + 1) * size)
        monitoring.update(splitmix(parts[-1].astype(np.uint64)), rng.integers(0, case.sites, size), times)
        counts += np.bincount(parts[-1], minlength=len(counts))
        if part >= SLICES:
            counts -= np.bincount(parts[part - SLICES], minlength=len(counts))
        if part == SLICES - 1:
            before = _so_far(monitoring)
        if part < SLICES or not isinstance(queries[0], SelfJoin):
            continue
        known, value = monitoring.answer(queries[0]), _self_join(monitoring)
        assert known.lo * (1 - 1e-9) <= value <= known.hi * (1 + 1e-9), (case, known, value)
        errors.append(abs(known.value - value) / value)
        exact = float((counts.astype(np.float64) ** 2).sum())
        true_errors.append(abs(known.value - exact) / float(SLICES * size) ** 2)
        values.append(value)
        sizes.append(_vector_bytes(monitoring))
    payload, messages, envelope, first, second = (
        now - then for now, then in zip(_so_far(monitoring), before, strict=True)
    )
    error = float(np.mean(errors)) if errors else 0.0
    every = _period(np.array(values), error) if values else 1.0
    return Outcome(
        SLICES * size,
        payload,
        messages,
        envelope,
        first,
        second,
        error,
        max(errors, default=0.0),
        float(np.mean(true_errors)) if true_errors else 0.0,
        every,
        float(np.mean(sizes)) / every if sizes else 0.0,
        process_time() - began,
    )


def _so_far(monitoring: Monitoring) -> tuple[int, int, int, int, int]:
    sent, phases = monitoring.channel.sent, monitoring.phases
    return sent.payload, sent.messages, sent.envelope, phases["first"], phases["second"]


def _self_join(monitoring: Monitoring) -> float:
    hashes = monitoring.layout.hashes[0]
    rows = monitoring.merged[0].reshape(hashes.rows, hashes.width)
    return float((rows**2).sum(axis=1).min())


def _vector_bytes(monitoring: Monitoring) -> int:
    """The bytes of the counters of all sites, as varints, when each has its share of the arrivals."""
    doubled = 2 * monitoring.merged[0] / monitoring.layout.sites
    return int(monitoring.layout.sites * (1 + (doubled >= 2**7) + (doubled >= 2**14)).sum())


def _period(values: Floats, error: float) -> float:
    """The share of a window after which counters are sent again, so that the mean error is `error`."""
    mean = [
        float(np.mean(np.abs(values[np.arange(SLICES) // p * p] - values) / values))
        for p in range(1, SLICES + 1)
    ]
    fits = [p for p, found in enumerate(mean, 1) if found <= error and p > 1]
    if fits:
        return max(fits) / SLICES
    return min(1.0, max(error / mean[1] * 2, 1e-3) / SLICES) if mean[1] else 1.0


def add(section: Section, out: Path, quick: bool) -> None:
    """Adds the figures of section 7.3.2 of the ECM paper."""
    sizes = QUICK if quick else Sizes()
    cases = _cases(sizes)
    # The largest first, so that both processes end at about the same time.
    ordered = sorted(cases, key=lambda one: -one.sites * one.rows)
    found = outcomes(measure, ordered, at_once=sizes.at_once)
    say(f"answers of {len(cases)} monitorings are within theta of the merged vectors")
    section.text(
        "Geometric monitoring (ECM paper, section 6): the self-join of a window over sites, eps = delta = "
        f"theta = {EPS} where nothing else is said, {sizes.rows:,} arrivals a site and window, two windows "
        "of which the second is measured. Bytes are payloads, beside 8 bytes for each arrival. `periodic`: "
        "sites that send their counters so often that the mean error is the same, with no promise about the "
        "largest one. The error against exact counts is a share of the squared arrivals of a window."
    )
    _by_sites(section, sizes, found)
    _by_theta(section, sizes, found)
    _several(section, sizes, found)
    path = out / "geometric.png"
    plot_panels(path, _panels(sizes, found), "Geometric monitoring: bytes for one byte of sending all")
    section.plot(path, "bytes of geometric monitoring by sites, theta and rows of a site")


def _cases(sizes: Sizes) -> list[Case]:
    base = Case(sizes.at, sizes.rows)
    some = [Case(sites, sizes.rows, drifts=drifts) for sites in sizes.sites for drifts in (False, True)]
    some += [replace(base, theta=theta, drifts=True) for theta in sizes.thetas]
    some += [replace(base, rows=rows, drifts=drifts) for rows in sizes.all_rows for drifts in (False, True)]
    both = [
        replace(one, by_norms=n)
        for one in some
        for n in (False, True)
        if one.sites <= sizes.by_norms or not n
    ]
    asked = [replace(base, drifts=True, asked=asked) for asked in ("self-join", "frequent", "both")]
    return list(dict.fromkeys(both + asked))


def _by_sites(section: Section, sizes: Sizes, found: dict[Case, Outcome]) -> None:
    rows: list[list[object]] = []
    for by_norms in (False, True):
        for drifts in (False, True):
            for sites in (n for n in sizes.sites if n <= sizes.by_norms or not by_norms):
                one = found[Case(sites, sizes.rows, drifts=drifts, by_norms=by_norms)]
                rows.append(
                    [
                        _zone(by_norms),
                        _stream(drifts),
                        sites,
                        f"{one.first:,}",
                        f"{one.second:,}",
                        f"{one.payload:,}",
                        f"{one.envelope:,}",
                        number(one.ratio),
                        number(one.periodic / (KEY_BYTES * one.arrivals)),
                        number(one.error),
                        number(one.worst),
                        number(one.true_error),
                    ]
                )
    head = ["zones", "stream", "sites", "phase 1", "phase 2", "payload", "envelopes", "of all bytes"]
    section.text(
        table([*head, "periodic, of all bytes", "mean error", "largest", "against exact counts"], rows)
    )
    for sites in sizes.sites:
        one = found[Case(sites, sizes.rows, drifts=True)]
        target = 0.01 if sites <= 32 else 0.5
        asked = target if sizes.rows >= Sizes().rows else None
        section.add(f"monitoring, drift, {sites} sites: bytes of those of sending all", one.ratio, "", asked)
        section.add(f"monitoring, drift, {sites} sites: mean error", one.error, "", THETA)
    largest = found[Case(sizes.sites[-1], sizes.rows)]
    pace = largest.seconds / (2 * largest.arrivals) * 1e7
    section.add(f"monitoring, steady, {sizes.sites[-1]} sites: 10 million arrivals", pace, "s", 600)


def _by_theta(section: Section, sizes: Sizes, found: dict[Case, Outcome]) -> None:
    rows: list[list[object]] = []
    for by_norms in (False, True):
        for theta in sizes.thetas:
            one = found[Case(sizes.at, sizes.rows, theta, drifts=True, by_norms=by_norms)]
            rows.append([_zone(by_norms), theta, one.first, one.second, number(one.ratio), number(one.error)])
    section.text(f"By theta, {sizes.at} sites, drift:")
    section.text(table(["zones", "theta", "phase 1", "phase 2", "of all bytes", "mean error"], rows))


def _several(section: Section, sizes: Sizes, found: dict[Case, Outcome]) -> None:
    sent = {
        asked: found[Case(sizes.at, sizes.rows, drifts=True, asked=asked)]
        for asked in ("self-join", "frequent", "both")
    }
    rows = [[asked, f"{one.messages:,}", f"{one.payload:,}"] for asked, one in sent.items()]
    section.text(f"Several queries over one sketch a site, {sizes.at} sites, drift; frequent are 5 %:")
    section.text(table(["monitored", "messages", "payload"], rows))
    alone = sent["self-join"].payload + sent["frequent"].payload
    section.add("monitoring, two queries together: bytes of those alone", sent["both"].payload / alone, "x")


def _panels(sizes: Sizes, found: dict[Case, Outcome]) -> list[Panel]:
    kinds = [(drifts, by_norms) for drifts in (False, True) for by_norms in (False, True)]
    least = 1e-5  # nothing was sent

    def ratio(case: Case) -> float:
        return max(least, found[case].ratio)

    def periodic(case: Case) -> float:
        return found[case].periodic / (KEY_BYTES * found[case].arrivals)

    by_sites = [
        Series(
            f"{_stream(drifts)}, {_zone(by_norms)}",
            [
                (float(n), ratio(Case(n, sizes.rows, drifts=drifts, by_norms=by_norms)))
                for n in sizes.sites
                if n <= sizes.by_norms or not by_norms
            ],
        )
        for drifts, by_norms in kinds
    ]
    sent_often = [(float(n), periodic(Case(n, sizes.rows, drifts=True))) for n in sizes.sites]
    by_rows = [
        Series(
            f"{_stream(drifts)}, {_zone(by_norms)}",
            [
                (float(rows), ratio(Case(sizes.at, rows, drifts=drifts, by_norms=by_norms)))
                for rows in sizes.all_rows
            ],
        )
        for drifts, by_norms in kinds
    ]
    by_theta = [
        Series(
            f"drift, {_zone(by_norms)}",
            [
                (theta, ratio(Case(sizes.at, sizes.rows, theta, drifts=True, by_norms=by_norms)))
                for theta in sizes.thetas
            ],
        )
        for by_norms in (False, True)
    ]
    return [
        Panel("by sites", "sites", "of all bytes", [*by_sites, Series("periodic, drift", sent_often, True)]),
        Panel(f"by rows of a site, {sizes.at} sites", "rows of a site and window", "of all bytes", by_rows),
        Panel(f"by theta, {sizes.at} sites", "theta", "of all bytes", by_theta),
    ]


def _zone(by_norms: bool) -> str:
    return "by norms, as in the paper" if by_norms else "ours"


def _stream(drifts: bool) -> str:
    return "drift" if drifts else "steady"
