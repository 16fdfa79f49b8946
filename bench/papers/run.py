"""Part `papers`: the experiments of the papers on sketches, in shape, at the size of one machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench.papers import geometric, hybrid, merging, prefixes, skylines, sums, topico, windowed_count_min
from bench.report import Section

# Each adds its figures, tables and pictures to the section.
EXPERIMENTS: tuple[Callable[[Section, Path, bool], None], ...] = (
    windowed_count_min.add,
    merging.add,
    hybrid.add,
    geometric.add,
    sums.add,
    topico.add,
    skylines.add,
    prefixes.add,
)


def run(out: Path, *, quick: bool) -> Section:
    """Measures and returns the section."""
    section = Section("papers", "Figures of papers")
    out.mkdir(parents=True, exist_ok=True)
    for add in EXPERIMENTS:
        add(section, out, quick)
    return section
