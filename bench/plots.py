"""The pictures of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter

COLOURS = {
    "quick": "#4c9f70",
    "accurate": "#1f5fa8",
    "exact": "#7a4fa3",
    "DuckDB": "#e0a526",
    "Spark": "#d1495b",
}


def plot_latency(path: Path, bars: Mapping[str, Mapping[str, float]], rows: int) -> None:
    """Bars of milliseconds on a logarithmic axis, a panel a distribution."""
    figure, axes = plt.subplots(
        1, len(bars), figsize=(3.6 * len(bars) + 0.8, 2.8), sharey=True, squeeze=False
    )
    for axis, (name, found) in zip(axes[0], bars.items(), strict=True):
        axis.barh(list(found), list(found.values()), color=[COLOURS[engine] for engine in found])
        axis.set_xscale("log")
        axis.set_xlim(min(found.values()) / 3, max(found.values()) * 30)
        for at, value in enumerate(found.values()):
            text = f" {value / 1000:.3g} s" if value >= 1000 else f" {value:.3g} ms"
            axis.text(value, at, text, va="center", fontsize=9)
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("milliseconds")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].invert_yaxis()
    figure.suptitle(f"Median time of a quantile over {rows:,} rows", fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def plot_accuracy(
    path: Path, panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]], rows: int, title: str
) -> None:
    """Mean error in rows by memory in MB, both logarithmic, a panel a distribution.

    An error below a hundredth of a row is drawn there.
    """
    least = 1e-2
    columns = min(2, len(panels))
    lines = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(5.2 * columns, 3.4 * lines), squeeze=False, sharey=True
    )
    for axis, (name, series) in zip(axes.flat, panels.items(), strict=False):
        for number, (engine, points) in enumerate(series.items()):
            ours = engine.startswith("tidemark")
            axis.plot(
                [memory for memory, _ in points],
                [max(least, error) for _, error in points],
                marker="os^Dvx"[number % 6],
                linewidth=2.2 if ours else 1.2,
                linestyle="-" if ours else "--",
                label=engine,
            )
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("memory (MB)")
        axis.set_ylabel(f"mean rank error (rows of {rows:,})", fontsize=9)
        axis.grid(visible=True, which="major", alpha=0.3)
    axes.flat[0].legend(fontsize=8)
    figure.suptitle(title, fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def plot_sketches(path: Path, series: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """Mean error by size in KB, both logarithmic; a merge is drawn as its counter, dashed."""
    figure, axis = plt.subplots(figsize=(6.4, 3.6))
    colours = dict(zip(("EH", "DW", "RW"), COLOURS.values(), strict=False))
    for name, points in series.items():
        counter, _, where = name.partition(", ")
        axis.plot(
            [size for size, _ in points],
            [error for _, error in points],
            marker="o" if where == "one site" else "^",
            linestyle="-" if where == "one site" else "--",
            color=colours[counter],
            label=name,
        )
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("stored size (KB)")
    axis.set_ylabel("mean error (of the arrivals)", fontsize=9)
    axis.grid(visible=True, which="major", alpha=0.3)
    axis.legend(fontsize=8)
    axis.set_title("Point queries: error by size", fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


@dataclass(frozen=True, slots=True)
class Series:
    """A line of a panel: points (x, y); a y that is NaN is left out. is_peer: drawn dashed."""

    name: str
    points: Sequence[tuple[float, float]]
    is_peer: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines over one pair of axes, both logarithmic unless `is_linear`."""

    title: str
    x: str
    y: str
    series: Sequence[Series]
    is_linear: bool = False


def _plain(digits: str, value: float, _: int) -> str:
    """A number without powers of ten if its first digit is one of `digits`, else nothing."""
    return f"{value:g}" if f"{value:e}"[0] in digits else ""


def plot_panels(path: Path, panels: Sequence[Panel], title: str) -> None:
    """Panels beside each other, two in a line; a name has the same colour and mark in all of them."""
    columns = min(2, len(panels))
    lines = -(-len(panels) // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(4.6 * columns, 3.1 * lines), squeeze=False)
    names = list(dict.fromkeys(one.name for panel in panels for one in panel.series))
    for axis, panel in zip(axes.flat, panels, strict=False):
        for one in panel.series:
            place = names.index(one.name)
            axis.plot(
                [x for x, _ in one.points],
                [y for _, y in one.points],
                marker="os^Dvx*P"[place % 8],
                markersize=4,
                linewidth=1.4,
                linestyle="--" if one.is_peer else "-",
                color=f"C{place % 10}",
                label=one.name,
            )
        if not panel.is_linear:
            axis.set_xscale("log")
            axis.set_yscale("log")
            for line, (low, high) in ((axis.xaxis, axis.get_xlim()), (axis.yaxis, axis.get_ylim())):
                # The wider the axis, the fewer numbers between powers of ten have room.
                digits = "2345678" if high < 8 * low else "25" if high < 300 * low else ""
                line.set_major_formatter(FuncFormatter(partial(_plain, "1")))
                line.set_minor_formatter(FuncFormatter(partial(_plain, digits)))
        axis.set_title(panel.title, fontsize=9)
        axis.set_xlabel(panel.x, fontsize=8)
        axis.set_ylabel(panel.y, fontsize=8)
        axis.tick_params(labelsize=7, which="both")
        axis.grid(visible=True, which="both", alpha=0.25)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    marks = {
        label: mark
        for axis in axes.flat
        for mark, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.suptitle(title, fontsize=10)
    figure.tight_layout(rect=(0, 0.06 / lines + 0.02, 1, 1))
    figure.legend(marks.values(), marks, loc="lower center", ncols=min(5, len(marks)), fontsize=7)
    figure.savefig(path, dpi=90)
    plt.close(figure)
