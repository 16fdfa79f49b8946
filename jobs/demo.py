"""The demo: three months of real flights, loaded as a person would, and asked for quantiles.

    make demo        (or: python -m jobs.demo [--warehouse FOLDER])

It backfills weekly batches with one spark-submit, loads one more week as a nightly batch, keeps
the last week live, and prints certified quantiles beside numpy's exact ones. Every run starts
from an empty warehouse, in a folder of its own unless --warehouse names one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import query
import stream
from jobs.session import spark_session
from sketches import target_rank

if TYPE_CHECKING:
    import pyarrow as pa

ROOT = Path(__file__).resolve().parent.parent
FLIGHTS = ROOT / "docs" / "data" / "flights-20k.parquet"
PHIS = (0.5, 0.9, 0.99, 0.999)
MODES = ("quick", "accurate", "exact")
WEEK = timedelta(days=7)
NIGHTLY = datetime.fromisoformat("2001-03-19T00:00:00+00:00")  # the week before the last, loaded by itself
LIVE = NIGHTLY + WEEK  # from here on nothing is loaded


def main() -> int:
    """Runs the demo; returns 0 where every answer kept its promise."""
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument(
        "--warehouse", type=Path, help="where to build it (default: a new temporary folder); emptied first"
    )
    given = args.parse_args()
    folder = given.warehouse or Path(tempfile.gettempdir()) / "tidemark-demo"
    console = Console()
    flights = pq.read_table(FLIGHTS)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    uri = folder / "warehouse"
    _cut(flights, folder)
    console.rule("1. backfill: weekly batches, one spark-submit")
    _submit(uri, folder / "backfill.parquet", "backfill", *_OPTIONS, "--batch-every", "7 days")
    console.rule("2. a nightly batch")
    _submit(uri, folder / "nightly.parquet", "week-of-2001-03-19")
    console.rule("3. the last week stays live")
    spark = spark_session("tidemark demo")
    for day, rows in enumerate(_days(flights)):
        stream.append(
            spark,
            uri,
            spark.createDataFrame(rows.to_pandas()).select(flights.column_names),
            source="web",
            batch=day,
        )
    spark.stop()
    wh = query.open(uri)
    console.print(f"{wh.info()['live_rows']:,} rows live, in the ledger", highlight=False)
    console.rule("4. quantiles of delay, in minutes")
    kept = [_ask(console, wh, flights, last) for last in (None, "14d")]
    picture = folder / "delay-cdf.png"
    _plot(wh, picture)
    console.print(f"plot: {picture}\nwarehouse: {uri}", highlight=False, soft_wrap=True)
    return 0 if all(kept) else 1


_OPTIONS = ("--measure", "delay", "--measure", "distance", "--key", "origin", "--time", "time", "--tick", "1 day",
            "--eps", "0.01", "--kappa", "3")  # fmt: skip


def _cut(flights: pa.Table, folder: Path) -> None:
    """The input files of the two loads."""
    time = flights.column("time")
    pq.write_table(flights.filter(pc.less(time, NIGHTLY)), folder / "backfill.parquet")
    between = pc.and_(pc.greater_equal(time, NIGHTLY), pc.less(time, LIVE))
    pq.write_table(flights.filter(between), folder / "nightly.parquet")


def _days(flights: pa.Table) -> list[pa.Table]:
    """What streams in: the rows that are not loaded, a batch a day."""
    late = flights.filter(pc.greater_equal(flights.column("time"), LIVE))
    day = pc.strftime(late.column("time"), "%Y-%m-%d")
    return [late.filter(pc.equal(day, one)) for one in sorted(pc.unique(day).to_pylist())]


def _submit(uri: Path, path: Path, batch: str, *options: str) -> None:
    submit = Path(sys.executable).parent / "spark-submit"
    command = [
        submit,
        ROOT / "jobs" / "load_batch.py",
        "--warehouse",
        uri,
        "--input",
        path,
        "--batch",
        batch,
        *options,
    ]
    subprocess.run([os.fspath(part) for part in command], check=True)  # noqa: S603  our own script, our own arguments


def _ask(console: Console, wh: query.Warehouse, flights: pa.Table, last: str | None) -> bool:
    """Prints the quantiles of a window in every mode beside the exact ones; whether all bounds hold."""
    first = wh.quantile(0.5, last=last)
    inside = (
        flights
        if first.window is None
        else flights.filter(pc.greater_equal(flights.column("time"), first.window[0]))
    )
    values = np.sort(inside.column("delay").to_numpy())
    table = Table("phi", "numpy", *(f"{mode} (error, bound)" for mode in MODES), title=f"{'all time' if last is None else 'last ' + last}: "
                  f"n = {first.n:,} in history + m = {first.m:,} live; eps = {first.eps}", title_justify="left")  # fmt: skip
    kept = len(values) == first.N
    answers = {mode: wh.quantile(PHIS, last=last, mode=mode) for mode in MODES}
    for i, phi in enumerate(PHIS):
        rank = target_rank(phi, len(values))
        exact = int(values[rank - 1])
        cells = []
        for mode in MODES:
            answer = answers[mode][i]
            error = max(
                0,
                rank - int(np.searchsorted(values, answer.value, "right")),
                int(np.searchsorted(values, answer.value, "left")) + 1 - rank,
            )
            promise = {"quick": answer.eps * answer.N, "accurate": answer.eps * answer.m, "exact": 0}[mode]
            kept &= error <= answer.error_bound <= promise and answer.low <= exact <= answer.high
            cells.append(f"{answer.value} ({error}, {answer.error_bound}) in [{answer.low}, {answer.high}]")
        table.add_row(f"{phi}", f"{exact}", *cells)
    console.print(table)
    console.print("every bound holds" if kept else "[bold red]a bound does not hold[/]")
    return kept


def _plot(wh: query.Warehouse, path: Path) -> None:
    """Saves the distribution of delays with its certified band, for all time and the last 14 days."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    points = list(range(-60, 181, 2))
    for last, colour in ((None, "tab:blue"), ("14d", "tab:orange")):
        curve = wh.cdf(points, last=last, mode="quick")
        low, high = (np.array([float(getattr(one, name)) for one in curve]) for name in ("cdf_lo", "cdf_hi"))
        label = "all time" if last is None else f"last {last}"
        axes.fill_between(points, low, high, color=colour, alpha=0.35, linewidth=0)
        axes.plot(points, [float(one.cdf) for one in curve], color=colour, linewidth=1, label=label)
    axes.set(xlabel="delay, minutes", ylabel="share of flights at most so late", ylim=(0, 1), xlim=(-60, 180))
    axes.set_title("Flights, January to March 2001: quick answers, certified band")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())
