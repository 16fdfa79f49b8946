"""The commands that draw: figures of `wh.plot` into files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark import query
from tidemark.jobs.ask.quantiles import asked, bins_of, phi_of
from tidemark.jobs.cli.progress import status_when_slow
from tidemark.query.plots.plots import check_drawable, size_for
from tidemark.warehouse.columns.json_values import json_text
from tidemark.warehouse.errors import InputError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

ENDINGS = (".png", ".svg", ".pdf")
DPI = 150


def cdf(given: argparse.Namespace) -> int:
    """Draws `tidemark plot cdf`."""
    return _drawn(given, lambda wh, how: wh.plot.cdf(given.measure, **how))


def quantiles(given: argparse.Namespace) -> int:
    """Draws `tidemark plot quantiles`."""
    phis = [phi_of(text) for text in given.phi]
    over = int(given.over) if given.over.isdecimal() else given.over
    return _drawn(given, lambda wh, how: wh.plot.quantiles(phis, given.measure, over=over, **how))


def histogram(given: argparse.Namespace) -> int:
    """Draws `tidemark plot histogram`."""
    return _drawn(given, lambda wh, how: wh.plot.histogram(bins_of(wh, given), given.measure, **how))


def top(given: argparse.Namespace) -> int:
    """Draws `tidemark plot top`."""
    return _drawn(given, lambda wh, how: wh.plot.top(given.k, **how), given.k)


def _drawn(
    given: argparse.Namespace, draw: Callable[[query.Warehouse, dict[str, Any]], Any], bars: int = 0
) -> int:
    path = _checked(given.output)
    wh = query.open(given.warehouse)
    with status_when_slow("drawing"):
        from matplotlib.figure import Figure

        figure = Figure(figsize=size_for(bars), layout="constrained")
        draw(wh, {**asked(wh, given), "ax": figure.subplots()})
        figure.savefig(path, dpi=DPI)
    print(json_text({"file": str(path)}) if given.json else path)
    return 0


def _checked(output: str) -> Path:
    """The picture's path, before anything is asked."""
    path = Path(output)
    if path.suffix.lower() not in ENDINGS:
        raise InputError(f"cannot draw into {output}: expected a name that ends in {', '.join(ENDINGS)}.")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent}. Make it, or give another --output.")
    check_drawable()
    return path
