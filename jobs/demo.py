"""The demo: loads three months of real flights as a user would, and queries quantiles.

    make demo        (or: python -m tidemark.jobs.demo [--warehouse FOLDER])

It backfills weekly batches with one spark-submit. Without Spark it loads one more week as a nightly batch
and keeps the last week live. Then it prints certified quantiles beside the exact ones of numpy. Every run
deletes the folder given by --warehouse, or a folder below the temporary directory, and builds it again.
"""

from __future__ import annotations

if __name__ == "__main__":
    import tidemark.jobs.cli.starting  # noqa: F401  sets what Ctrl-C does

import argparse
import getpass
import shutil
import subprocess
import sys
import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from matplotlib.figure import Figure
from rich.box import SIMPLE
from rich.table import Table

from tidemark import query, stream
from tidemark.jobs.cli import terminal
from tidemark.jobs.cli.exit_codes import DONE, FAILED
from tidemark.query.reading.modes import MODES
from tidemark.sketches import target_rank

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray
    from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent
FLIGHTS = ROOT / "docs" / "data" / "flights-20k.parquet"
PHIS = (0.5, 0.9, 0.99, 0.999)
OPTIONS = "--measure delay --measure distance --key origin --time time --eps 0.01 --kappa 3"
SHORT_LIVED = "-XX:TieredStopAtLevel=1"  # the job ends before Java's second compiler would pay off
WEEK = timedelta(days=7)
NIGHTLY_FROM = datetime.fromisoformat("2001-03-19T00:00:00+00:00")  # begins the week before the last
LIVE_FROM = NIGHTLY_FROM + WEEK  # rows from here on are streamed, not loaded


def main() -> int:
    """Runs the demo; returns FAILED if an answer broke its bound."""
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--warehouse", type=Path, help="the folder to build in; emptied first")
    given = args.parse_args()
    folder = given.warehouse or Path(tempfile.gettempdir()) / f"tidemark-demo-{getpass.getuser()}"
    console = terminal.console()
    flights = pq.read_table(FLIGHTS)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    uri = folder / "warehouse"
    console.rule("1. backfill: weekly batches, one spark-submit")
    _write_inputs(flights, folder)
    _submit(uri, folder / "backfill.parquet", "backfill", *OPTIONS.split(), "--batch-every", "7 days")
    console.rule("2. one more week, as a nightly batch without Spark")
    _load(uri, folder / "nightly.parquet", f"week-of-{NIGHTLY_FROM:%Y-%m-%d}")
    console.rule("3. the last week stays live")
    _stream(uri, flights)
    wh = query.open(uri)
    console.print(f"{wh.info()['live_rows']:,} rows live, in the ledger")
    console.rule("4. quantiles of delay, in minutes")
    held = [_compare(console, wh, flights, last) for last in (None, "14d")]
    picture = folder / "delay-cdf.png"
    _plot(wh, picture)
    console.print(f"plot: {picture}\nwarehouse: {uri}", soft_wrap=True)
    return DONE if all(held) else FAILED


def _write_inputs(flights: pa.Table, folder: Path) -> None:
    """Writes the input files of the two loads."""
    time = flights.column("time")
    pq.write_table(flights.filter(pc.less(time, NIGHTLY_FROM)), folder / "backfill.parquet")
    between = pc.and_(pc.greater_equal(time, NIGHTLY_FROM), pc.less(time, LIVE_FROM))
    pq.write_table(flights.filter(between), folder / "nightly.parquet")


def _submit(uri: Path, path: Path, batch: str, *options: str) -> None:
    submit = Path(sys.executable).parent / "spark-submit"
    job = [ROOT / "jobs/load_batch.py", "--warehouse", uri, "--input", path, "--batch", batch]
    command = [submit, "--driver-java-options", SHORT_LIVED, *job]
    subprocess.run([*map(str, command), *options], check=True)  # noqa: S603  our own script and arguments


def _load(uri: Path, path: Path, batch: str) -> None:
    command = [sys.executable, "-m", "tidemark.jobs.cli.main", "load", "--engine", "local"]
    command += ["--warehouse", str(uri), "--input", str(path), "--batch", batch]
    subprocess.run(command, check=True)  # noqa: S603  our own command and arguments


def _stream(uri: Path, flights: pa.Table) -> None:
    """Appends the rows of the last week as a stream, one batch per day."""
    streamed = flights.filter(pc.greater_equal(flights.column("time"), LIVE_FROM))
    days = pc.strftime(streamed.column("time"), "%Y-%m-%d")
    for batch, day in enumerate(sorted(pc.unique(days).to_pylist())):
        stream.append(None, uri, streamed.filter(pc.equal(days, day)), source="web", batch=batch)


def _compare(console: Console, wh: query.Warehouse, flights: pa.Table, last: str | None) -> bool:
    """Prints the quantiles of a window in every mode beside the exact ones; whether all bounds hold."""
    window = wh.quantile(0.5, last=last).window
    inside = (
        flights if window is None else flights.filter(pc.greater_equal(flights.column("time"), window[0]))
    )
    values = np.sort(inside.column("delay").to_numpy())
    table = Table("phi", "numpy", "mode", "answer", "certainly in", "error", "bound", "promise", box=SIMPLE)
    held = True
    for phi in PHIS:
        rank = target_rank(phi, len(values))
        for mode in MODES:
            answer = wh.quantile(phi, last=last, mode=mode)
            error = _rank_error(values, rank, answer.value)
            bounds = {"quick": answer.eps * answer.N, "accurate": answer.eps * answer.m, "exact": 0.0}
            exact = int(values[rank - 1])
            held &= len(values) == answer.N and answer.low <= exact <= answer.high
            held &= error <= answer.error_bound <= bounds[mode]
            first = [f"{phi}", f"{exact}"] if mode == MODES[0] else ["", ""]
            cells = [mode, f"{answer.value}", f"{answer.low} to {answer.high}"]
            table.add_row(*first, *cells, f"{error}", f"{answer.error_bound}", f"{bounds[mode]:.1f}")
    title = "all time" if last is None else f"last {last}"
    console.print(f"{title}: {answer.n:,} rows in history, {answer.m:,} live")
    console.print(f"eps = {answer.eps}; errors, bounds and promises in ranks")
    console.print(table)
    console.print(
        "every bound holds\n" if held else "a bound does not hold\n", style="" if held else "bold red"
    )
    return held


def _rank_error(values: NDArray[Any], rank: int, answer: int) -> int:
    """The distance in ranks between the answer and the requested rank."""
    le, lt = (int(np.searchsorted(values, answer, side)) for side in ("right", "left"))
    return max(0, rank - le, lt + 1 - rank)


def _plot(wh: query.Warehouse, path: Path) -> None:
    """Saves the distribution of delays with its certified band, for all time and the last 14 days."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    points = list(range(-60, 181, 2))
    for last, colour in ((None, "tab:blue"), ("14d", "tab:orange")):
        curve = cast("Sequence[query.CdfAnswer]", wh.cdf(points, last=last, mode="quick"))
        low, high = [point.cdf_lo for point in curve], [point.cdf_hi for point in curve]
        label = "all time" if last is None else f"last {last}"
        axes.fill_between(points, low, high, color=colour, alpha=0.35, linewidth=0)
        axes.plot(points, [point.cdf for point in curve], color=colour, linewidth=1, label=label)
    axes.set(
        xlabel="delay, minutes",
        ylabel="share of flights with at most x",
        ylim=(0, 1),
        xlim=(-60, 180),
    )
    axes.set_title("Flights, January to March 2001: quick answers and their certified band")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
