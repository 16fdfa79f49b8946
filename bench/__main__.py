"""The command line: ``python -m bench [PART ...] [--rows N] [--quick]``, parts as in report.PARTS."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from bench import (
    accuracy,
    change,
    command,
    distinct,
    distinct_sketches,
    figures,
    frequencies,
    groups,
    key_latency,
    latency,
    load_cost,
    persistence_sketches,
    report,
    sql,
    store_load,
    store_questions,
    stores,
    streaming,
)
from bench.daily import run as daily
from bench.daily.rows import Sizes
from bench.engines import start_spark
from bench.papers import run as papers
from bench.select import run as select
from bench.sites import run as sites
from bench.sites.rows import QUICK as QUICK_SITES
from bench.sites.rows import Sizes as SitesSizes

QUICK_FREQUENCIES = frequencies.Sizes(3_000, (0.2, 0.25), 20_000, 2_000, 1)
# The parts without Spark, by the arguments and a folder for generated files.
WITHOUT_SPARK: dict[str, Callable[[argparse.Namespace, Path], report.Section]] = {
    "daily": lambda asked, work: daily.run(work, daily.QUICK if asked.quick else daily.SIZES),
    "daily-heaviest": lambda asked, work: daily.run_heaviest(
        work, daily.QUICK[0] if asked.quick else Sizes(asked.rows)
    ),
    "change": lambda asked, work: change.run(
        work, change.QUICK if asked.quick else change.Sizes(asked.rows // 10)
    ),
    "sites": lambda asked, work: sites.run(
        work, QUICK_SITES if asked.quick else SitesSizes(asked.rows // 10)
    ),
    "sites-large": lambda asked, work: sites.run_large(
        work, replace(QUICK_SITES, runs=(1,)) if asked.quick else SitesSizes(asked.rows, runs=(3,))
    ),
    "sketches": lambda asked, _: frequencies.run(
        asked.out, QUICK_FREQUENCIES if asked.quick else frequencies.Sizes()
    ),
    "distinct-sketches": lambda asked, _: distinct_sketches.run(
        asked.out, distinct_sketches.QUICK if asked.quick else distinct_sketches.Sizes()
    ),
    "persistence-sketches": lambda asked, _: persistence_sketches.run(
        asked.out, persistence_sketches.QUICK if asked.quick else persistence_sketches.Sizes()
    ),
    "papers": lambda asked, _: papers.run(asked.out, quick=asked.quick),
}
# The parts about keys and groups: their rows when quick, and their questions.
BY_KEY: dict[str, tuple[Callable[[SparkSession, Path, latency.Sizes], report.Section], int, int]] = {
    "keys": (key_latency.run, 30_000, 200),
    "groups": (groups.run, 100_000, 100),
    "distinct": (distinct.run, 50_000, 100),
}
LONG = {"billion", "daily-heaviest", "select-large", "sites-large"}  # parts that run only when they are named
DOCS = Path(__file__).resolve().parent.parent / "docs" / "bench"


def main(words: Sequence[str] | None = None, spark: SparkSession | None = None) -> None:
    """Runs the parts asked for, and writes each into the report when it is done.

    words: those of the command line without its name; None for this process's own.
    spark: a session that runs already, and stays; None starts one, and ends it, where a part needs it.
    """
    asked = _parser().parse_args(words)
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-", dir=asked.work) as folder:
        work = Path(folder)
        parts = asked.parts or [part for part in report.PARTS if part not in LONG or asked.quick]
        report.say(f"parts {' '.join(parts)}, work in {work}, report in {asked.out}")
        for part in (part for part in parts if part in WITHOUT_SPARK):  # before there is a Spark beside them
            _write(WITHOUT_SPARK[part](asked, work), asked.out)
        with_spark = [part for part in parts if part not in WITHOUT_SPARK]
        if not with_spark:
            return
        session = spark or start_spark(work)
        for part in with_spark:
            _write(_run(part, session, work, asked), asked.out)
        if spark is None:
            session.stop()


def _write(section: report.Section, out: Path) -> None:
    """Puts the section into the report; the pages that show its figures follow."""
    report.say(f"wrote {report.write(section, out)}")
    if out == DOCS:
        figures.write_pages()


def _run(  # noqa: PLR0911  one return for each part
    part: str, spark: SparkSession, work: Path, asked: argparse.Namespace
) -> report.Section:
    quick = asked.quick
    if part in latency.TITLES:
        rows, names = (
            (asked.rows, asked.distributions) if part == "query" else (10 * asked.rows, ["lognormal"])
        )
        sizes = (
            latency.Sizes(20_000, 2, 1, 2, ("lognormal",), peers=part == "query", starts=1)
            if quick
            else latency.Sizes(rows, 25, 10, 200, tuple(names), peers=part == "query")
        )
        kept = work / "filled" if quick else asked.kept  # billion is then asked about the rows of query
        return latency.run(spark, work, asked.out, sizes, part, kept)
    if part == "load":
        loads = (
            load_cost.Sizes(10_000, 1, 1, (1,), ("text", "no key twice"))
            if quick
            else load_cost.Sizes(asked.rows // 10)
        )
        return load_cost.run(spark, work, loads)
    if part in BY_KEY:
        run, rows, questions = BY_KEY[part]
        few = latency.Sizes(rows, 2, 1, 10, (), repeats=1)
        many = latency.Sizes(asked.rows, 25, 10, questions, ())
        return run(spark, work, few if quick else many)
    if part == "command":
        few = latency.Sizes(20_000, 2, 1, 1, ())
        return command.run(spark, work, few if quick else latency.Sizes(asked.rows // 10, 25, 10, 15, ()))
    if part == "sql":
        sizes = (
            latency.Sizes(20_000, 2, 1, 2, ()) if quick else latency.Sizes(asked.rows // 10, 25, 10, 101, ())
        )
        return sql.run(spark, work, sizes)
    if part in select.PARTS:
        return select.PARTS[part](spark, work, select.QUICK if quick else select.sizes(part, asked.rows))
    if part == "stream":
        small = streaming.Sizes(2_000, 4, 1, 70, (1, 2))
        return streaming.run(spark, work, small if quick else streaming.Sizes())
    if part == "stores":
        asked_of_it = store_questions.Sizes(2_000, 2, 500, 2, 1) if quick else store_questions.Sizes()
        stored = store_load.Sizes(5_000, 1_000, 1, 1_000, 2) if quick else store_load.Sizes(asked.rows // 20)
        return stores.run(spark, work, stored, asked_of_it)
    if quick:
        return accuracy.run(spark, work, asked.out, rows=9_000, step_count=3, budgets=(0.125,))
    budgets = (0.5, 1, 2.5, 5, 10)
    return accuracy.run(spark, work, asked.out, rows=asked.rows // 10, step_count=100, budgets=budgets)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measures tidemark on this machine.")
    parser.add_argument(
        "parts",
        nargs="*",
        choices=[*report.PARTS, []],
        help=f"parts to run; without, all but {', '.join(sorted(LONG))}, which take half an hour each",
    )
    parser.add_argument(
        "--rows",
        type=int,
        default=100_000_000,
        help="of the parts query, daily-heaviest and sites-large; ten times as many in billion, 0.4 times as "
        "many in select-large, a tenth elsewhere",
    )
    parser.add_argument(
        "--distributions", nargs="+", default=["lognormal", "uniform", "flights"], help="of the part query"
    )
    parser.add_argument("--quick", action="store_true", help="small: does it run, are answers right")
    parser.add_argument("--work", type=Path, help="a folder for generated warehouses; it is left as it was")
    parser.add_argument(
        "--kept",
        type=Path,
        help="a folder that keeps the filled warehouses of query and billion for the next run",
    )
    parser.add_argument("--out", type=Path, default=DOCS, help="where report.md and its pictures go")
    return parser


if __name__ == "__main__":
    main()
