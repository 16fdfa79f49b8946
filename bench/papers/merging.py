"""Merge trees of 2 to 256 sites, after Papapetrou et al. (2015), section 7.3.1: table 4 and figure 7."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.frequencies import Stream, central, join_error, merged_tree, point_errors
from bench.plots import Panel, Series, plot_panels
from bench.report import Section, number, say, table
from tidemark.sketches.counters.counting import CounterKind

KINDS: tuple[CounterKind, ...] = ("EH", "DW")


@dataclass(frozen=True, slots=True)
class Sizes:
    """arrivals: of all sites together. sites: powers of two. eps: of the tree by sites, and of table 4."""

    arrivals: int = 200_000
    sites: tuple[int, ...] = (2, 4, 8, 16, 32, 64, 128, 256)
    eps: float = 0.15
    table: tuple[float, ...] = (0.1, 0.2)


QUICK = Sizes(20_000, (2, 8))


def add(section: Section, out: Path, quick: bool) -> None:
    """Adds the experiments, with a picture."""
    sizes = QUICK if quick else Sizes()
    stream = Stream.of(sizes.arrivals)
    section.text(
        f"### Merge trees\n\n{sizes.arrivals:,} arrivals at sites drawn at random, merged in a balanced "
        "binary tree. An error is over the arrivals of the range, as in the ECM paper; an increase is the "
        "error after all merges over that of one sketch of the whole stream."
    )
    rows, errors, sent = [], [], []
    for kind in KINDS:
        alone = central(stream, kind, sizes.eps)
        one = float(point_errors(alone, stream).mean())
        by_sites = []
        for sites in sizes.sites:
            merged, travelled = merged_tree(stream, kind, sizes.eps, sites=sites)
            mean = float(point_errors(merged, stream).mean())
            by_sites.append((sites, mean, travelled))
            rows.append([kind, sites, number(mean), number(mean / one), f"{number(travelled / 1024)} KB"])
        errors.append(Series(kind, [(float(sites), mean) for sites, mean, _ in by_sites]))
        sent.append(Series(kind, [(float(sites), travelled / 1024) for sites, _, travelled in by_sites]))
        most = max(mean / one for _, mean, _ in by_sites)
        section.add(
            f"merge tree, {kind}: increase of the error, 2 to {sizes.sites[-1]} sites", most, "x", 1.19
        )
        say(f"{kind}: {len(by_sites)} trees of sites keep their bounds")
    section.text(table(["counter", "sites", "mean error", "increase", "bytes that travel"], rows))
    section.text(f"Table 4, {sizes.sites[-1]} sites: errors of one sketch and of the tree.")
    section.text(
        table(["counter", "eps", "points", "increase", "self-joins", "increase"], _table(stream, sizes))
    )
    path = out / "merging.png"
    plot_panels(
        path,
        [
            Panel(
                "mean error of point queries (figure 7a)", "sites", "of the arrivals", errors, is_linear=True
            ),
            Panel("bytes that travel (figure 7b)", "sites", "KB", sent),
        ],
        f"Sketches merged in a binary tree, eps = {sizes.eps}",
    )
    section.plot(path, "merge trees by sites")


def _table(stream: Stream, sizes: Sizes) -> list[list[object]]:
    rows: list[list[object]] = []
    sites = sizes.sites[-1]
    for kind in KINDS:
        for eps in sizes.table:
            points = [
                float(point_errors(sketch, stream).mean())
                for sketch in (central(stream, kind, eps), merged_tree(stream, kind, eps, sites=sites)[0])
            ]
            joins = [
                join_error(sketch, stream)
                for sketch in (
                    central(stream, kind, eps, joins=True),
                    merged_tree(stream, kind, eps, sites=sites, joins=True)[0],
                )
            ]
            row: list[object] = [kind, eps]
            for one, merged in (points, joins):
                row += [f"{number(one)} : {number(merged)}", number(merged / one if one else np.nan)]
            rows.append(row)
    return rows
