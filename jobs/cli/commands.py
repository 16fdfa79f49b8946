"""The pages of the command `tidemark`: what each of its commands is called, takes, says and runs.

A new command is a new entry of COMMANDS. A name of two words is a command below another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidemark.jobs.cli import arguments

ABOUT = """\
Quantiles over everything that a warehouse holds and everything that has arrived since the last load, with
certified bounds in the answer. History lies in Delta Lake; the live side is held in sketches.
"""

ENDING = f"""\
The warehouse is named by -w, or by the variable {arguments.VARIABLE}. With --json a command prints one line
of JSON: times in ISO 8601 with their zone, decimals as text, NaN and infinities as "NaN", "Infinity" and
"-Infinity".

exit codes:
  0    done
  2    bad usage or bad input, and nothing was changed
  130  ended by Ctrl-C; `stream` and `watch` end so with 0
  1    anything else
"""


@dataclass(frozen=True, slots=True)
class Command:
    """A page: `options` adds what the command takes, `run` is the module and function that does it.

    A command without `run` only holds those below it.
    """

    name: str
    summary: str
    text: str
    examples: tuple[str, ...]
    options: Callable[[Any], None] | None = None
    run: str = ""
    needs_warehouse: bool = True


KAFKA = """\
PYSPARK_SUBMIT_ARGS='--packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 pyspark-shell' \\
      tidemark stream -w flights --source kafka --bootstrap localhost:9092 --topic flights"""

COMMANDS = (
    Command(
        "create",
        "make a warehouse",
        """\
Makes a warehouse, or finds that the one there has these very options. They are fixed from then on. Without
--schema the first batch brings the columns and their types. A first `tidemark load` with --measure makes
the warehouse too.""",
        (
            "tidemark create -w flights --measure delay --key origin --time time",
            "tidemark create -w clicks --measure ms --time at --schema 'at timestamp, ms double'",
        ),
        arguments.create,
        "tidemark.jobs.create:run",
    ),
    Command(
        "load",
        "load a batch of files, or what the streams brought, into history",
        """\
Loads a batch of files as one step of history. The same --batch again changes nothing, with other rows it
is refused. A crash is mended by running the command again. With --from-stream it moves what the streams
brought since the last load. With --engine local no Java is started: for Parquet, CSV and JSON files of up to
some million rows on this machine.""",
        (
            "tidemark load -w flights --input 2001-03-19.parquet --batch 2001-03-19 --measure delay",
            "tidemark load -w flights --input backfill/ --batch all --batch-every '7 days'",
            "tidemark load -w flights --from-stream",
            "tidemark load -w flights --engine local --input 2001-03-20.parquet --batch 2001-03-20",
        ),
        arguments.load,
        "tidemark.jobs.load_batch:run",
    ),
    Command(
        "stream",
        "stream events into the live side",
        """\
Streams events until SIGTERM or Ctrl-C, which end it after the batch in work. Run again it goes on where it
stopped. Records that do not parse, and events from the far future, go to the table `rejected` with the
reason. With --json it prints one document for each batch. Kafka needs a package of Spark's:
set PYSPARK_SUBMIT_ARGS, or use spark-submit --packages with jobs/stream_events.py.""",
        (
            "tidemark stream -w flights --source files --path incoming --format csv",
            "tidemark stream -w flights --source delta --path table --once",
            KAFKA,
        ),
        arguments.stream,
        "tidemark.jobs.stream_events:run",
    ),
    Command(
        "maintain",
        "sweep what nobody may still see, compact small files",
        """\
Deletes files that no commit names or that no reader may still see, and joins small ones. A --grace that is
shorter than the warehouse's own is safe only while nobody reads and no load runs.""",
        ("tidemark maintain -w flights", "tidemark maintain -w flights --grace '2 days'"),
        arguments.maintain,
        "tidemark.jobs.maintain:run",
    ),
    Command(
        "verify",
        "check every invariant on the real tables",
        """\
Reads all of the warehouse once, without a JVM, and says of each invariant whether it holds. Ends with 1
where one does not. Others may write meanwhile: what changed at every look is busy, and breaks nothing.""",
        ("tidemark verify -w flights",),
        arguments.common,
        "tidemark.jobs.verify:run",
    ),
    Command(
        "info",
        "steps, runs, live rows, bytes and versions",
        "Shows what the warehouse holds: steps, runs by level, live batches and rows, bytes, table versions.",
        ("tidemark info -w flights", "tidemark info -w flights --json | jq .live_rows"),
        arguments.common,
        "tidemark.jobs.ask.quantiles:info",
    ),
    Command(
        "quantile",
        "quantiles, with the interval that certainly holds each",
        """\
The PHI-quantile is the smallest value that at least ceil(PHI * N) rows do not exceed. `low` to `high`
certainly holds it, `rank_lo` to `rank_hi` is where `value` certainly stands among the N rows, and
`error_bound` is how many ranks it can be off at most. Windows are whole ticks; the last line says which.""",
        (
            "tidemark quantile 0.99 -w flights",
            "tidemark quantile 0.5 0.9 0.99 -w flights --measure delay --last 14d",
            "tidemark quantile 0.5 -w flights --between 2001-02-01 2001-03-01 --mode exact",
            "tidemark quantile 0.99 -w flights --json | jq '.answers[0].value'",
        ),
        arguments.quantile,
        "tidemark.jobs.ask.quantiles:quantile",
    ),
    Command(
        "rank",
        "how many rows are at most X",
        """\
Counts the rows that are at most X: about `rank`, certainly `rank_lo` to `rank_hi`. NaN is at most nothing.
Numbers such as -1e3 go behind a --.""",
        (
            "tidemark rank 60 -w flights",
            "tidemark rank -w flights --last 7d -- -15 0 15",
        ),
        arguments.points,
        "tidemark.jobs.ask.quantiles:rank",
    ),
    Command(
        "cdf",
        "which share of the rows is at most X",
        "The share of the rows that are at most X: about `cdf`, certainly `cdf_lo` to `cdf_hi`.",
        ("tidemark cdf 0 15 60 -w flights", "tidemark cdf 0 -w flights --between 2001-03-01 -"),
        arguments.points,
        "tidemark.jobs.ask.quantiles:cdf",
    ),
    Command(
        "histogram",
        "counts in bins",
        """\
Counts of rows in bins of equal width from the least to the greatest number, or between given edges. A bin
holds about `count` rows, certainly `lo` to `hi`; it is closed on the left, the last one on both sides.""",
        (
            "tidemark histogram -w flights --bins 10",
            "tidemark histogram -w flights --edges -60 0 15 60 1440 --measure delay",
        ),
        arguments.histogram,
        "tidemark.jobs.ask.quantiles:histogram",
    ),
    Command(
        "freq",
        "how many rows have a key",
        """\
Counts the rows that have each KEY: about `count`, `in_history` of them in history, which is exact. `hi`
is certain, `lo` holds with the confidence that the last line says; where the two are one, the count is
exact. Keys are written as their column's type is: 42, 2001-03-19, 12.50, true; binary in hexadecimal digits.
Rows whose key is NULL are told in the last line. Keys that begin with a dash go behind a --.""",
        (
            "tidemark freq ATL ORD -w flights --last 14d",
            "tidemark freq ATL -w flights --mode exact --json | jq '.answers[0].count'",
            "tidemark freq -w readings -- -1e3",
        ),
        arguments.frequency,
        "tidemark.jobs.ask.keys:frequency",
    ),
    Command(
        "top",
        "the most frequent keys",
        """\
The K keys with most rows, most first. `lo` to `hi` certainly holds the rows of each; `certain` says that no
key that is left out has more.""",
        ("tidemark top -w flights", "tidemark top 5 -w flights --last 7d --mode exact"),
        arguments.top,
        "tidemark.jobs.ask.keys:top",
    ),
    Command(
        "hitters",
        "every key with a share of the rows",
        """\
Every key with at least PHI of the rows that have a key, most first: none is missed. `lo` to `hi` certainly
holds its rows; `certain` says that it surely has as many, the others may have.""",
        ("tidemark hitters 0.01 -w flights", "tidemark hitters 0.001 -w flights --between 2001-03-01 -"),
        arguments.hitters,
        "tidemark.jobs.ask.keys:hitters",
    ),
    Command(
        "plot",
        "pictures of answers with their certified bands",
        "Draws answers into a file, whose ending says the format: png, svg or pdf. Needs matplotlib.",
        (
            "tidemark plot cdf -w flights -o delays.png",
            "tidemark plot quantiles -w flights -o week.svg --over 7d",
            "tidemark plot top -w flights -o origins.png",
        ),
    ),
    Command(
        "plot cdf",
        "the share of the rows at most x",
        "Draws the share of the rows at most x between the quantiles 0.005 and 0.995.",
        ("tidemark plot cdf -w flights -o delays.png --last 14d --mode quick",),
        arguments.picture,
        "tidemark.jobs.ask.pictures:cdf",
    ),
    Command(
        "plot quantiles",
        "quantiles over time",
        "Draws quantiles over time, an answer for each tick of the window or for each span of --over.",
        ("tidemark plot quantiles -w flights -o week.png --phi 0.5 0.99 --over 7d",),
        arguments.plot_quantiles,
        "tidemark.jobs.ask.pictures:quantiles",
    ),
    Command(
        "plot histogram",
        "counts in bins",
        "Draws counts in bins of equal width, or between given edges, which may leave a long tail out.",
        ("tidemark plot histogram -w flights -o delays.png --bins 30",),
        arguments.plot_histogram,
        "tidemark.jobs.ask.pictures:histogram",
    ),
    Command(
        "plot top",
        "the most frequent keys",
        """\
Draws the keys with most rows as bars: what history holds, which is exact, and what is live, with the
certain interval of each.""",
        ("tidemark plot top 10 -w flights -o origins.png --last 7d",),
        arguments.plot_top,
        "tidemark.jobs.ask.pictures:top",
    ),
    Command(
        "watch",
        "quantiles and top keys that are redrawn as data arrives",
        """\
Asks again every few seconds until Ctrl-C, or --times times. Where output is no terminal each look is
printed below the last one. With --json it prints one document for each look, the keys in its `top`.""",
        ("tidemark watch -w flights", "tidemark watch 0.99 0.999 -w flights --last 1d --every 5 --times 12"),
        arguments.watch,
        "tidemark.jobs.ask.watch:run",
    ),
    Command(
        "sql-server",
        "serve warehouses to JDBC clients",
        """\
Starts Spark's Thrift server, which JDBC and ODBC clients connect to, beeline and dashboards among them. In
each of their sessions are the functions and views of the warehouses: NAME_quantile, NAME_events ... Prints
the JDBC address and serves until SIGTERM or Ctrl-C. Clients ask, and do nothing else: what writes, reads
files by their paths or calls Java is refused. Beyond this machine it asks for names and passwords.""",
        (
            "tidemark sql-server -w flights=/data/flights -w clicks=/data/clicks --port 10000",
            "tidemark sql-server -w flights=/data/flights --host 0.0.0.0 --port 10000 --users users",
            "TIDEMARK_WAREHOUSE=/data/flights tidemark sql-server",
        ),
        arguments.sql_server,
        "tidemark.jobs.sql_server:run",
        needs_warehouse=False,
    ),
    Command(
        "completion",
        "a script that completes words in bash, zsh or fish",
        "Prints a script for the shell, made from the very options that this version takes.",
        (
            'eval "$(tidemark completion bash)"      # in ~/.bashrc',
            'eval "$(tidemark completion zsh)"       # in ~/.zshrc, below compinit',
            "tidemark completion fish | source       # in ~/.config/fish/config.fish",
        ),
        arguments.completion,
        "tidemark.jobs.cli.completion:run",
        needs_warehouse=False,
    ),
)
