"""The commands `tidemark plot ...`: figures of `wh.plot`, saved to files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark import query
from tidemark.jobs.ask.keys import key_options
from tidemark.jobs.ask.quantiles import bins_or_edges, measure_options, parse_phi, window_and_mode
from tidemark.jobs.cli.exit_codes import DONE
from tidemark.jobs.cli.progress import status_when_slow
from tidemark.query.plots.plots import check_drawable, size_for
from tidemark.warehouse.columns.json_values import json_text
from tidemark.warehouse.errors import InputError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

EXTENSIONS = (".png", ".svg", ".pdf")
DPI = 150


def cdf(given: argparse.Namespace) -> int:
    """Runs `tidemark plot cdf`."""
    return _save_figure(given, lambda wh, options: wh.plot.cdf(given.measure, **options))


def quantiles(given: argparse.Namespace) -> int:
    """Runs `tidemark plot quantiles`."""
    phis = [parse_phi(text) for text in given.phi]
    return _save_figure(
        given,
        lambda wh, options: wh.plot.quantiles(phis, given.measure, **options),
        options_of=measure_options,
    )


def histogram(given: argparse.Namespace) -> int:
    """Runs `tidemark plot histogram`."""
    return _save_figure(
        given,
        lambda wh, options: wh.plot.histogram(
            bins_or_edges(wh, given), given.measure, log=given.log, upto=given.upto, **options
        ),
    )


def top(given: argparse.Namespace) -> int:
    """Runs `tidemark plot top`."""
    return _save_figure(given, lambda wh, options: wh.plot.top(given.k, **options), given.k, key_options)


def _save_figure(
    given: argparse.Namespace,
    draw: Callable[[query.Warehouse, dict[str, Any]], Any],
    bars: int = 0,
    options_of: Callable[[query.Warehouse, argparse.Namespace], dict[str, Any]] = window_and_mode,
) -> int:
    """Saves a figure that `draw` fills; `bars` is the number of bars, which sets the figure's height.

    options_of: the keyword arguments of the figure.
    """
    path = _checked_path(given.output)
    wh = query.open(given.warehouse, given.storage_options)
    with status_when_slow("drawing"):
        from matplotlib.figure import Figure

        figure = Figure(figsize=size_for(bars), layout="constrained")
        options = {name: value for name, value in options_of(wh, given).items() if value is not None}
        draw(wh, {**options, "ax": figure.subplots()})
        figure.savefig(path, dpi=DPI)
    print(json_text({"file": str(path)}) if given.json else path)
    return DONE


def _checked_path(output: str) -> Path:
    """The path of the picture; checked before the warehouse is read."""
    path = Path(output)
    if path.suffix.lower() not in EXTENSIONS:
        raise InputError(f"cannot draw into {output}: expected a name that ends in {', '.join(EXTENSIONS)}.")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent}. Create it, or give another --output.")
    check_drawable()
    return path
