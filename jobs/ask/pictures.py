"""The commands `tidemark plot ...`: they save figures of `wh.plot` to files."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark import query
from tidemark.jobs.ask.keys import key_options
from tidemark.jobs.ask.quantiles import bins_or_edges, measure_options, opened, parse_phi, window_and_mode
from tidemark.jobs.cli.exit_codes import DONE
from tidemark.jobs.cli.progress import status_when_slow
from tidemark.query.plots.plots import check_drawable, size_for
from tidemark.warehouse.columns.json_values import json_text
from tidemark.warehouse.errors import InputError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from matplotlib.axes import Axes

EXTENSIONS = (".png", ".svg", ".pdf")
DPI = 150


def cdf(given: argparse.Namespace) -> int:
    """Runs `tidemark plot cdf`."""
    with _figure(given) as (wh, axes):
        wh.plot.cdf(given.measure, ax=axes, **_given(window_and_mode(wh, given)))
    return DONE


def quantiles(given: argparse.Namespace) -> int:
    """Runs `tidemark plot quantiles`."""
    phis = [parse_phi(text) for text in given.phi]
    with _figure(given) as (wh, axes):
        wh.plot.quantiles(phis, given.measure, ax=axes, **_given(measure_options(wh, given)))
    return DONE


def histogram(given: argparse.Namespace) -> int:
    """Runs `tidemark plot histogram`."""
    with _figure(given) as (wh, axes):
        bins, options = bins_or_edges(wh, given), _given(window_and_mode(wh, given))
        wh.plot.histogram(bins, given.measure, log=given.log, upto=given.upto, ax=axes, **options)
    return DONE


def top(given: argparse.Namespace) -> int:
    """Runs `tidemark plot top`."""
    with _figure(given, bars=given.k) as (wh, axes):
        wh.plot.top(given.k, ax=axes, **_given(key_options(wh, given)))
    return DONE


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


@contextmanager
def _figure(given: argparse.Namespace, bars: int = 0) -> Iterator[tuple[query.Warehouse, Axes]]:
    """The warehouse and the axes of a figure, which is saved at the end; `bars` sets its height."""
    path = _checked_path(given.output)
    wh = opened(given)
    with status_when_slow("drawing"):
        from matplotlib.figure import Figure

        figure = Figure(figsize=size_for(bars), layout="constrained")
        yield wh, figure.subplots()
        figure.savefig(path, dpi=DPI)
    print(json_text({"file": str(path)}) if given.json else path)


def _checked_path(output: str) -> Path:
    """The path of the picture; checked before the warehouse is read."""
    path = Path(output)
    if path.suffix.lower() not in EXTENSIONS:
        raise InputError(f"cannot draw into {output}: expected a name that ends in {', '.join(EXTENSIONS)}.")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent}. Create it, or give another --output.")
    check_drawable()
    return path
