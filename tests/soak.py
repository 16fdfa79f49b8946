"""docs/soak.md: what long runs under faults have shown. Each run writes its own section anew."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
REPORT = Path(__file__).resolve().parent.parent / "docs" / "soak.md"
HAS_ALL = "TIDEMARK_SOAK_CASES" in os.environ  # `make soak` sets it
DRAWS = int(os.environ.get("TIDEMARK_SOAK_DRAWS", "1"))  # `make soak` sets it


def draws(usual: int) -> int:
    """How many examples hypothesis draws where each is a whole warehouse; a soak draws many times as many."""
    return usual * DRAWS


def some(cases: Iterable[T], usual: int) -> list[T]:
    """Of costly cases so many, at even distances from the first to the last; a soak takes all.

    For cases of one kind, such as the points at which a call is killed. Other tests may name the same ones.
    """
    every = list(cases)
    step = (len(every) - 1) / (usual - 1)
    return every if HAS_ALL or usual >= len(every) else [every[round(i * step)] for i in range(usual)]


def table(figures: Mapping[str, int]) -> str:
    """The figures as a Markdown table."""
    return "\n".join(["| | |", "|---|---:|", *(f"| {what} | {count:,} |" for what, count in figures.items())])


def write_section(title: str, about: str, figures: Mapping[str, int], report: Path = REPORT) -> None:
    """Puts the section in the place of the one with its title, or at the end."""
    section = f"## {title}\n\n{about}\n\n{table(figures)}\n"
    text = report.read_text()
    found = re.search(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    if found is None:
        report.write_text(f"{text.rstrip()}\n\n{section}")
    else:
        rest = text[found.end() :]
        report.write_text(text[: found.start()] + section + ("\n" + rest if rest else ""))
