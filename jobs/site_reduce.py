"""Map, combine and reduce over the warehouses of several sites: only combined results travel.

    at each site   tidemark sites map -w W --site 0 --map words:split --combine words:add
    who asks       tidemark sites reduce --sites 3 --reduce words:total
    all of them    --exchange s3://shared/exchange --topic words-monday --secret secret.key

`map` reads the warehouse's `events`, in Spark's tasks or in this process; `reduce` is one process. They may
run together or one after the other, and end when all have what is meant for them. One that failed is started
again.

    map(batch)           a pyarrow.RecordBatch of rows -> pairs (key, value), any number of them
    combine(a, b)        two values of a key -> one; in any order and nesting
    reduce(key, values)  the combined values of the sites that have the key, in their order -> one

Keys and values are what JSON has: text, numbers, True, False, None, and lists and dicts of these. A function
is named `module:function`, of a module in the current folder or on the path; Spark's workers get its file.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemark import query
from tidemark.jobs.cli.exchange_secret import secret_of
from tidemark.jobs.cli.exit_codes import DONE, RULE, job_end
from tidemark.jobs.cli.options import parsed, serving
from tidemark.jobs.cli.options.parts import add
from tidemark.jobs.cli.process import arguments
from tidemark.jobs.cli.progress import show_progress
from tidemark.jobs.inputs.engine import engine_for_history, session_for
from tidemark.query.answers.rendering import text_of
from tidemark.sketches.errors import SketchError
from tidemark.sketches.sites.endpoint import Endpoint
from tidemark.sketches.sites.envelope import COORDINATOR
from tidemark.sketches.sites.gather import Gatherer, Teller
from tidemark.warehouse.columns.json_values import json_text
from tidemark.warehouse.errors import InputError, TidemarkError
from tidemark.warehouse.exchange import FileExchange, run_place
from tidemark.warehouse.execution.executors import executor_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Pairs = Iterable[tuple[Any, Any]]
Combined = dict[str, Any]  # the value of each key, which is JSON text
Combine = Callable[[Any, Any], Any]


def main(argv: list[str] | None = None) -> int:
    """Runs the job; returns its exit code."""
    args = argparse.ArgumentParser(
        prog="site_reduce.py",
        description=__doc__,
        epilog=RULE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parts = args.add_subparsers(metavar="map|reduce", required=True)
    page = parts.add_parser("map", help="map and combine the rows of a site")
    add(page, serving.SITE_MAP)
    page.set_defaults(run=run_map)
    page = parts.add_parser("reduce", help="reduce what the sites tell")
    add(page, serving.SITE_REDUCE)
    page.set_defaults(run=run_reduce)
    given = args.parse_args(arguments(argv))
    with job_end(given, needs_warehouse=given.run is run_map) as end:
        end.code = given.run(given)
    return end.code


def run_map(given: argparse.Namespace) -> int:
    """Maps and combines the rows of the warehouse, and sends the result to the place that reduces."""
    functions = function_named(given.map), function_named(given.combine)
    secret = secret_of(given.secret)
    spark = session_for(
        given.engine, lambda: engine_for_history(given.warehouse, given.storage_options), "tidemark sites map"
    )
    with show_progress(spark):
        found = combined_events(spark, given.warehouse, given.storage_options, *functions)
    payload = json.dumps([[json.loads(key), value] for key, value in sorted(found.items())]).encode()
    _exchange(given, secret, given.site, [COORDINATOR], Teller(payload), lambda: True)
    if given.json:
        print(json_text({"site": given.site, "keys": len(found), "bytes": len(payload)}))
    else:
        print(f"site {given.site}: {len(found):,} keys, {len(payload):,} bytes told")
    return DONE


def run_reduce(given: argparse.Namespace) -> int:
    """Waits for all sites and prints the reduced value of each key, ascending."""
    given.storage_options = parsed.storage_options_of(given)
    reduce, secret = function_named(given.reduce), secret_of(given.secret)
    if given.sites < 1:
        raise InputError(f"--sites must be at least 1, got {given.sites}.")
    gatherer = Gatherer(given.sites)
    sites = list(range(given.sites))
    _exchange(given, secret, COORDINATOR, sites, gatherer, lambda: not gatherer.missing)
    found = reduced([json.loads(payload) for payload in gatherer.payloads()], reduce)
    if given.json:
        print(json_text({"sites": given.sites, "values": [list(pair) for pair in found]}))
    else:
        print(*(f"{text_of(key)}\t{text_of(value)}" for key, value in found), sep="\n")
    return DONE


def combined_events(
    spark: SparkSession | None,
    uri: str,
    storage_options: dict[str, str] | None,
    mapped: Callable[[pa.RecordBatch], Pairs],
    combine: Combine,
) -> Combined:
    """The combined value of each key of a warehouse's rows: of each task of Spark, and then of all tasks."""
    if spark is None:
        rows: Any = query.open(uri, storage_options).sql("FROM events")
        names = list(rows.columns)
    else:
        _give_file(spark, mapped)
        _give_file(spark, combine)
        (name,) = query.register_views(spark, uri, "tidemark_site", storage_options=storage_options)
        rows = spark.table(f"{name}_events")
        names = rows.columns

    parts = executor_for(spark).input(rows).each(names, _MapAndCombine(names, mapped, combine))
    return combined(((json.loads(key), value) for part in parts for key, value in part.items()), combine)


@dataclass(frozen=True)
class _MapAndCombine:
    """The user's functions map and combine over the rows of a task, which have the columns `names`."""

    names: list[str]
    mapped: Callable[[pa.RecordBatch], Pairs]
    combine: Combine

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Combined]:
        named = (batch.rename_columns(self.names) for batch in batches)
        yield combined((pair for batch in named for pair in self.mapped(batch)), self.combine)


def combined(pairs: Pairs, combine: Combine) -> Combined:
    """The combined value of each key of pairs.

    Raises InputError for a key or a value that JSON has not, and with any error of the functions.
    """
    found: Combined = {}
    try:
        for key, value in pairs:
            text = json.dumps(key, sort_keys=True)
            found[text] = combine(found[text], value) if text in found else value
        json.dumps([*found.values()])
    except Exception as error:
        raise InputError(
            f"map and combine failed: {error!r}. They must give pairs (key, value) of what JSON has."
        ) from error
    return found


def reduced(
    sites: list[list[tuple[Any, Any]]], reduce: Callable[[Any, list[Any]], Any]
) -> list[tuple[Any, Any]]:
    """(key, reduced value) for every key that a site has, in the order of their JSON texts."""
    values: dict[str, list[Any]] = {}
    for pairs in sites:
        for key, value in pairs:
            values.setdefault(json.dumps(key, sort_keys=True), []).append(value)
    try:
        return [(json.loads(key), reduce(json.loads(key), values[key])) for key in sorted(values)]
    except Exception as error:
        raise InputError(f"reduce failed: {error!r}. It gets a key and a list of values.") from error


def function_named(name: str) -> Callable[..., Any]:
    """The function of "module:function". Raises InputError if there is none."""
    module, _, attribute = name.partition(":")
    if "" not in sys.path:  # a command's path has its own folder in the place of the current one
        sys.path.insert(0, "")
    try:
        found = getattr(import_module(module), attribute)
    except Exception as error:  # whatever the module of the caller raises
        raise InputError(
            f"the function {name} cannot be imported: {type(error).__name__}: {error}. Name it "
            "module:function, of a module in the current folder or on the path of Python."
        ) from error
    if not callable(found):
        raise InputError(f"{name} is a {type(found).__name__}, expected a function.")
    function: Callable[..., Any] = found
    return function


def _give_file(spark: SparkSession, function: Callable[..., Any]) -> None:
    """Gives the file of a function's module to Spark's workers; a package must be installed there."""
    module = sys.modules[function.__module__]
    if getattr(module, "__file__", None) and "." not in module.__name__:
        spark.sparkContext.addPyFile(str(Path(str(module.__file__)).resolve()))


def _exchange(
    given: argparse.Namespace,
    secret: bytes,
    place: int,
    peers: list[int],
    machine: Teller | Gatherer,
    is_done: Callable[[], bool],
) -> None:
    """Runs the machine of this place until all have taken what is meant for them."""
    try:
        endpoint = Endpoint(given.topic, place, peers, incarnation=time.time_ns(), secret=secret)
        files = FileExchange(given.exchange, endpoint, storage_options=given.storage_options)
        run_place(machine, endpoint, files, is_done, every=given.poll, most_seconds=given.timeout)
    except SketchError as error:
        raise TidemarkError(str(error)) from error


if __name__ == "__main__":
    sys.exit(main())
