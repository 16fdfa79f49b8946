"""Figures beside their targets, and the report: one Markdown file with a section a part."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from tidemark.jobs.spark.session import DELTA_PACKAGE

TITLE = "# Benchmarks\n\nMade by `python -m bench`; each part is written anew when it is run.\n"
_SECTION = re.compile(r"<!-- part: ([\w-]+) -->\n(.*?)<!-- end -->", re.DOTALL)
PARTS = (
    "query",
    "billion",
    "keys",
    "groups",
    "daily",
    "daily-heaviest",
    "distinct",
    "sql",
    "select",
    "select-large",
    "command",
    "load",
    "change",
    "stream",
    "stores",
    "sites",
    "sites-large",
    "accuracy",
    "sketches",
    "distinct-sketches",
    "persistence-sketches",
    "papers",
)


def say(text: str) -> None:
    """A line of progress."""
    print(f"{datetime.now(UTC):%H:%M:%S}  {text}", flush=True)


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured, beside what was asked for. A target of None is only told."""

    name: str
    value: float
    unit: str
    target: float | None = None
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the target was reached; None where there is none."""
        if self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target

    def cells(self) -> list[str]:
        """The figure as a row of a table."""
        asked = (
            ""
            if self.target is None
            else f"{'>=' if self.at_least else '<='} {number(self.target)} {self.unit}"
        )
        return [
            self.name,
            asked,
            f"{number(self.value)} {self.unit}",
            {None: "", True: "met", False: "**missed**"}[self.met],
        ]


def number(value: float) -> str:
    """Three digits that matter."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


@dataclass(slots=True)
class Section:
    """One part of the report while it is made."""

    part: str
    title: str
    blocks: list[str] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)

    def add(
        self, name: str, value: float, unit: str, target: float | None = None, *, at_least: bool = False
    ) -> None:
        """Adds a figure and says it."""
        figure = Figure(name, value, unit, target, at_least)
        self.figures.append(figure)
        _, asked, measured, verdict = figure.cells()
        say(f"{name}: {measured}" + (f"  ({asked}: {verdict.strip('*')})" if asked else ""))

    def text(self, text: str) -> None:
        """Adds a paragraph or a table."""
        self.blocks.append(text)

    def plot(self, path: Path, caption: str) -> None:
        """Adds a picture that lies beside the report."""
        self.blocks.append(f"![{caption}]({path.name})")

    def markdown(self) -> str:
        """The section's text."""
        head = f"## {self.title}\n\n{machine()}"
        rows = table(["figure", "target", "measured", ""], [figure.cells() for figure in self.figures])
        return "\n\n".join([head, rows, *self.blocks]) + "\n"


def write(section: Section, folder: Path) -> Path:
    """Puts the section into the report, in place of an older one of the same part.

    ValueError if the report has text outside of its parts: it would be lost.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "report.md"
    found = _sections(path.read_text()) if path.exists() else {}
    found[section.part] = section.markdown()
    body = "\n".join(f"<!-- part: {part} -->\n{found[part]}<!-- end -->\n" for part in PARTS if part in found)
    path.write_text(f"{TITLE}\n{body}")
    return path


def _sections(text: str) -> dict[str, str]:
    outside = _SECTION.sub("", text.removeprefix(TITLE)).strip()
    if outside:
        raise ValueError(f"the report has text outside of its parts, mark it or remove it: {outside[:80]!r}")
    return dict(_SECTION.findall(text))


def machine() -> str:
    """When and on what this was measured."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    names = ("pyspark", "deltalake", "duckdb", "pyarrow", "numpy", "numba", "datasketches")
    packages = ", ".join([f"{name} {version(name)}" for name in names] + [DELTA_PACKAGE.split(":", 1)[1]])
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} cores, {memory:.0f} GiB, {_processor()}, "
        f"{platform.system()}, Python {sys.version.split()[0]}; {packages}."
    )


def _processor() -> str:
    try:
        found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1].strip() if found else platform.machine()
