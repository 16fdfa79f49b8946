"""Part `accuracy`: the error at equal memory, against sketches of the whole stream.

After the experiments of Singh's thesis (2015), section 4.5: a hundred equal steps, the last one live, and
the same bytes for every contender. The sketches (KLL, REQ, t-digest, GK) summarise all rows; tidemark holds
the marks of its runs, the summary of the live step and, where they fit, the live rows, and may read a few
blocks of history. Its tables are real ones, made by the library's own tasks and commits without Spark's part
in them, so that a hundred steps take seconds; the questions go through `query.open`.

Memory: the serialized size of a datasketches sketch; the bytes of the arrays of our own (GK: value, rmin,
rmax; marks: value, position; counts by tick; cached rows). tidemark's eps and each sketch's parameter are the
best that fit.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from bench.data import Oracle, Rows, year
from bench.plots import plot_accuracy
from bench.report import Section, number, say, table
from tidemark import query, stream, warehouse
from tidemark.query.reading.modes import Mode
from tidemark.sketches import GK
from tidemark.warehouse.columns.tick_counts import TickCounts
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import STEPS
from tidemark.warehouse.events import steps
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.execution.executors import LocalExecutor
from tidemark.warehouse.loads import history
from tidemark.warehouse.loads.run_builder import MergeInputs, merge_runs
from tidemark.warehouse.projections.sorted_values import SortedValues, ValueRows
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.runs.levels import Layout, Run, plan_merge
from tidemark.warehouse.runs.projection import RunSpec
from tidemark.warehouse.runs.run_files import write_rows
from tidemark.warehouse.settings.options import Options, read_options
from tidemark.warehouse.snapshots.snapshot_reader import open_snapshot
from tidemark.warehouse.snapshots.views import View
from tidemark.warehouse.work import Work

KAPPA = 10
TOTALS = ("ticks", "counts", "nans", "nulls")
MB = 2**20
PHIS = [0.001, *(percent / 100 for percent in range(1, 100)), 0.999]
OURS = ("tidemark accurate", "tidemark quick")
_fitted: dict[tuple[str, int, int], float] = {}  # by contender, rows and budget
DISTRIBUTIONS = ("uniform", "normal", "lognormal", "flights")


@dataclass(frozen=True, slots=True)
class Error:
    """The memory that was used (bytes), and the rank errors of all phis (rows)."""

    memory: int
    rows: tuple[int, ...]

    @property
    def mean(self) -> float:
        """The mean error in rows."""
        return float(np.mean(self.rows))


def run(
    spark: SparkSession, work: Path, out: Path, *, rows: int, step_count: int, budgets: tuple[float, ...]
) -> Section:
    """Measures and returns the section; `budgets` in MB."""
    section = Section("accuracy", "Accuracy for memory")
    live = rows // step_count
    section.text(
        f"{step_count} steps of {live:,} rows, kappa = {KAPPA}, the last step live; {len(PHIS)} phis from "
        "0.001 to 0.999. An error is that of the rank, in rows; relative is that over N. A mean of 0 counts "
        "as one row in one of the phis when it is compared. The package's KLL takes k up to 65,535, its REQ "
        "up to 254, so they cannot use the larger budgets in full."
    )
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    lines = []
    worst: dict[str, float] = {}
    for name in DISTRIBUTIONS:
        panels[name] = {}
        for budget in budgets:
            found = _contest(spark, work / "accuracy", name, rows, step_count, int(budget * MB))
            for engine, error in found.items():
                panels[name].setdefault(engine, []).append((error.memory / MB, error.mean))
                lines.append(_line(name, budget, engine, error, rows))
            ratio = _advantage(found)
            worst[name] = min(worst.get(name, np.inf), ratio)
            say(
                f"  answers of {name} are right; mean errors at {budget:g} MB: "
                + ", ".join(f"{e} {number(x.mean)}" for e, x in found.items())
            )
    for name, ratio in worst.items():
        section.add(
            f"{name}: best sketch's mean error / accurate's, least over the budgets",
            ratio,
            "x",
            100,
            at_least=True,
        )
    out.mkdir(parents=True, exist_ok=True)
    plot_accuracy(
        out / "accuracy.png", panels, rows, f"Error at equal memory: {step_count} steps, the last one live"
    )
    section.plot(
        out / "accuracy.png", "Mean rank error by memory, for tidemark and sketches of the whole stream"
    )
    head = ["", "budget (MB)", "", "used (MB)", "mean (rows)", "greatest (rows)", "mean / N"]
    section.text(table(head, lines))
    return section


def _line(name: str, budget: float, engine: str, error: Error, rows: int) -> list[str]:
    worst = max(error.rows)
    return [
        name,
        f"{budget:g}",
        engine,
        f"{error.memory / MB:.2f}",
        number(error.mean),
        f"{worst:,}",
        f"{error.mean / rows:.1e}",
    ]


def _advantage(found: Mapping[str, Error]) -> float:
    """How many times smaller accurate's mean error is than that of the best sketch."""
    resolution = 1 / len(PHIS)
    best = min(error.mean for engine, error in found.items() if engine not in OURS)
    return max(best, resolution) / max(found[OURS[0]].mean, resolution)


def _contest(
    spark: SparkSession, folder: Path, name: str, rows: int, step_count: int, budget: int
) -> dict[str, Error]:
    """Everybody's errors at one budget."""
    parts = year(name, rows, step_count, days=step_count, mixed=False)
    oracle = Oracle.of(parts)
    found = _ask_tidemark(spark, folder, parts, oracle, budget)
    for engine, contender in CONTENDERS.items():
        found[engine] = _fit(engine, contender, oracle, parts, budget)
    return found


# tidemark


def _ask_tidemark(
    spark: SparkSession, folder: Path, parts: list[Rows], oracle: Oracle, budget: int
) -> dict[str, Error]:
    """The errors of both modes with about the least eps whose memory fits.

    Memory hardly depends on the values, so the eps that was found for other rows is tried first.
    """
    key = ("tidemark", len(oracle.values), budget)
    eps = _fitted.get(key, 400 / budget)
    best: tuple[float, dict[str, Error]] | None = None
    for _ in range(6):
        shutil.rmtree(folder, ignore_errors=True)
        memory, errors = _at_eps(spark, folder, parts, oracle, eps, budget)
        if memory <= budget and (best is None or eps < best[0]):
            best = eps, errors
        if best is not None and best[0] == eps and (memory >= 0.9 * budget or eps <= 1e-6):
            break
        fixed = _cached_bytes(parts[-1], budget)  # the rest is about as large as 1 / eps
        eps = float(f"{max(1e-6, eps * max(memory - fixed, 1) / (budget - fixed) * 1.03):.3g}")
        if best is not None and eps >= best[0]:
            break
    assert best is not None, budget
    _fitted[key] = best[0]
    return best[1]


def _cached_bytes(live: Rows, budget: int) -> int:
    """The part of the budget for the live rows: what they take, or 0 if little would be left for the rest."""
    live_bytes = SortedValues(Measure("value", "double")).sorted_bytes(live.rows, ticks=1)
    return live_bytes if live_bytes <= 0.8 * budget else 0


def _at_eps(
    spark: SparkSession, folder: Path, parts: list[Rows], oracle: Oracle, eps: float, budget: int
) -> tuple[int, dict[str, Error]]:
    uri = str(folder / "warehouse")
    _fill(spark, uri, parts, eps)
    wh = query.open(uri, memory=_cached_bytes(parts[-1], budget))
    errors = {}
    promises: dict[Mode, float] = {"accurate": eps * parts[-1].rows, "quick": eps * len(oracle.values)}
    for mode, promise in promises.items():
        answers = wh.quantile(PHIS, mode=mode)
        for answer in answers:
            assert (answer.N, answer.m) == (len(oracle.values), parts[-1].rows), answer
            assert oracle.error(answer.phi, answer.value) <= answer.error_bound <= promise, answer
        errors[f"tidemark {mode}"] = tuple(oracle.error(one.phi, one.value) for one in answers)
    memory = held(open_snapshot(uri).current().view()) + wh.info()["memory"]["used"]
    return memory, {engine: Error(memory, rows) for engine, rows in errors.items()}


def held(view: View) -> int:
    """The bytes that a reader holds of a measure: marks, counts by tick, and summaries of live rows."""
    runs = sum(
        array.nbytes
        for run in view.runs
        for array in (
            run.positions,
            run.values,
            run.totals.ticks,
            run.totals.counts,
            run.totals.nans,
            run.totals.nulls,
        )
    )
    return runs + sum(gk_bytes(row.sketch) for row in view.live)


def gk_bytes(sketch: GK) -> int:
    """The bytes of a GK summary's tuples."""
    return sum(part.nbytes for part in (sketch.summary.values, sketch.summary.rmin, sketch.summary.rmax))


def _fill(spark: SparkSession, uri: str, parts: list[Rows], eps: float) -> None:
    """Every step but the last in history, merged as loads merge; the last one in the ledger."""
    kind = "bigint" if parts[0].values().dtype == np.int64 else "double"
    warehouse.create(spark, uri, ["value"], eps=eps, kappa=KAPPA, schema=f"value {kind}")
    store = Store.from_uri(uri)
    options = read_options(store)
    values = SortedValues(options.measure())
    *loaded, live = parts
    for part in loaded:
        batch = BatchRange(f"load:{part.step}", 0, 0)
        plan = steps.StepPlan(part.step, ((batch, part.rows),))
        steps.commit_plan(store, Race(store, STEPS), plan)
        new = _sorted_run(store, values, options, part.values(), part.step)
        run_tables.append_marks(store, values, new)
        commits = history.StepCommits(Work(LocalExecutor(), store, options), part.step, {}, lacking=())
        assert commits.commit(values, new)
        _merge(store, values, options)
    stream.append(None, uri, pa.table({"value": live.values()}), source="web", batch=0)


def _sorted_run(
    store: Store, values: SortedValues, options: Options, column: Any, step: int
) -> run_tables.NewRun:
    run = Run(step, step, 0)
    attempt = data_files.unique_name()
    ticks, none = np.full(len(column), step, dtype=np.int64), np.zeros(1, dtype=np.int64)
    totals = TickCounts(ticks[:1], np.array([len(column)]), none, none)
    rows = values.sort([ValueRows(column, ticks)])
    path = run_tables.run_path(values, run, attempt, 0)
    file = write_rows(
        store.filesystem(), path, values, iter([rows]), RunSpec(len(column), totals, options.eps)
    )
    return run_tables.NewRun(run, attempt, (file,), totals, values.marks_tables([file], totals))


def _merge(store: Store, values: SortedValues, options: Options) -> None:
    """What a load does after its step, in this process."""
    while True:
        found = run_tables.runs_of(tables.open_table(store, values.runs_table))
        merge = plan_merge(Layout.of(found), options.kappa)
        if merge is None:
            return
        new = merge_runs(Work(LocalExecutor(), store, options), values, MergeInputs(merge, found))
        run_tables.append_marks(store, values, new)
        olds = {run: found[run] for run in merge.inputs}
        assert run_tables.replace_if_same(store, values, olds, [new])


# Sketches of the whole stream


@dataclass(frozen=True, slots=True)
class Contender:
    """A sketch: how it is made of a parameter, fed, measured and asked.

    `least` and `most` bound the parameter; more of it takes more memory.
    """

    make: Callable[[float], Any]
    update: Callable[[Any, Any], None]
    size: Callable[[Any], int]
    quantile: Callable[[Any, float], Any]
    least: float
    most: float
    grain: int = 1


def _serialized(sketch: Any) -> int:
    return len(sketch.serialize())


CONTENDERS = {
    "KLL": Contender(
        lambda k: datasketches.kll_doubles_sketch(int(k)),
        lambda sketch, values: sketch.update(values.astype(np.float64)),
        _serialized,
        lambda sketch, phi: sketch.get_quantile(phi, True),
        least=8,
        most=65_535,
    ),
    "REQ": Contender(
        lambda k: datasketches.req_floats_sketch(int(k)),
        lambda sketch, values: sketch.update(values.astype(np.float32)),
        _serialized,
        lambda sketch, phi: sketch.get_quantile(phi, True),
        least=4,
        most=254,  # the package keeps k in a byte
        grain=2,
    ),
    "t-digest": Contender(
        lambda k: datasketches.tdigest_double(int(k)),
        lambda sketch, values: sketch.update(values.astype(np.float64)),
        _serialized,
        lambda sketch, phi: sketch.get_quantile(phi),
        least=10,
        most=65_535,
    ),
    "GK": Contender(
        lambda inverse: GK(1 / inverse),
        lambda sketch, values: sketch.update(values.astype(np.float64)),
        gk_bytes,
        lambda sketch, phi: sketch.quantile(phi),
        least=10,
        most=1e7,
        grain=0,
    ),
}


def _fit(engine: str, contender: Contender, oracle: Oracle, parts: list[Rows], budget: int) -> Error:
    """The errors with about the greatest parameter that fits.

    Sizes hardly depend on the values, so the parameter that was found for other rows is tried first.
    """
    key = (engine, len(oracle.values), budget)
    parameter = _fitted.get(key, 200.0)
    best: tuple[float, Any, int] | None = None
    for _ in range(8):
        parameter = min(max(parameter, contender.least), contender.most)
        if contender.grain:
            parameter = contender.grain * (parameter // contender.grain)
        sketch = contender.make(parameter)
        for part in parts:
            contender.update(sketch, part.values())
        size = contender.size(sketch)
        if size <= budget and (best is None or parameter > best[0]):
            best = (parameter, sketch, size)
        fits = best is not None and (best[2] >= 0.93 * budget or best[0] >= contender.most)
        if fits:
            break
        # Sizes grow in steps: after the first look go in smaller ones.
        parameter = parameter * 0.96 * budget / size
        if best is not None and parameter <= best[0]:
            break
    assert best is not None, (contender, budget)
    _fitted[key] = best[0]
    rows = tuple(oracle.error(phi, contender.quantile(best[1], phi)) for phi in PHIS)
    return Error(best[2], rows)
