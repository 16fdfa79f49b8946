"""What the jobs and the command `tidemark` take: every group of options is written here, once.

Nothing is imported that reads a warehouse, so help and completion are told at once. Each function adds
its options to a parser, which also becomes `parser` of what is parsed: usage that is found wrong later
is told by it.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

VARIABLE = "TIDEMARK_WAREHOUSE"
FORMATS = ("parquet", "csv", "tsv", "json", "delta")
MODES = ("quick", "accurate", "exact")
KEY_MODES = ("approximate", "exact")
ENGINES = ("spark", "local")
SHELLS = ("bash", "zsh", "fish")
FILE, FOLDER = "FILE", "PATH"  # what shells complete with names of files


def warehouse_of(given: argparse.Namespace) -> str:
    """The warehouse that was named, or the variable's; a usage error where there is neither."""
    named = getattr(given, "warehouse", None) or os.environ.get(VARIABLE)
    if not named:
        given.parser.error(f"no warehouse was named. Give -w PATH, or set the variable {VARIABLE}.")
    return str(named)


def warehouse(args: argparse.ArgumentParser) -> None:
    """-w; where it is left out the attribute is missing, so that `tidemark -w W load` keeps its W."""
    args.add_argument(
        "-w",
        "--warehouse",
        metavar=FOLDER,
        default=argparse.SUPPRESS,
        help=f"the warehouse's folder or address (default: the variable {VARIABLE})",
    )


def common(args: argparse.ArgumentParser) -> None:
    """What every command takes."""
    args.set_defaults(parser=args)
    warehouse(args)
    args.add_argument("--json", action="store_true", help="print one JSON document, for programs")


def creation(args: Any) -> None:
    """The options that are fixed when a warehouse is made."""
    args.add_argument(
        "--measure", action="append", metavar="COLUMN", help="a numeric column; may be repeated"
    )
    args.add_argument("--key", metavar="COLUMN", help="the column that frequencies are asked of")
    args.add_argument("--time", metavar="COLUMN", help="the event time, a timestamp or date")
    args.add_argument("--tick", metavar="SPAN", help="the grain of windows (default 1 day)")
    args.add_argument("--eps", type=float, help="the promise, in (0, 0.5) (default 0.001)")
    args.add_argument("--kappa", type=int, help="the merge threshold, at least 2 (default 10)")


def created_with(given: argparse.Namespace) -> dict[str, Any]:
    """What was given of `creation`, as `warehouse.create` takes it."""
    names = {"measures": "measure", **{name: name for name in ("key", "time", "tick", "eps", "kappa")}}
    return {name: getattr(given, option) for name, option in names.items()}


def create(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark create`."""
    common(args)
    creation(args)
    args.add_argument(
        "--grace", metavar="SPAN", help="how long what readers may still see is kept (default 7 days)"
    )
    args.add_argument(
        "--key-eps",
        type=float,
        metavar="E",
        help="a live count of a key errs by at most E * m (default 0.01) ...",
    )
    args.add_argument(
        "--key-delta", type=float, metavar="D", help="... with probability 1 - D (default 0.01)"
    )
    args.add_argument(
        "--schema",
        metavar="DDL",
        help="the columns, such as 'time timestamp, delay int' (default: those of the first batch)",
    )


def load(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark load` and jobs/load_batch.py."""
    common(args)
    what = args.add_mutually_exclusive_group(required=True)
    what.add_argument("--input", metavar=FOLDER, help="a file or a folder of files, or a Delta table")
    what.add_argument(
        "--from-stream", action="store_true", help="load what the streams brought since the last load"
    )
    args.add_argument("--format", choices=FORMATS, help="the input's format (default: by its name)")
    args.add_argument("--batch", metavar="ID", help="the batch's name: the same name again changes nothing")
    args.add_argument(
        "--batch-every", metavar="SPAN", help="cut the input by event time into batches of this length"
    )
    args.add_argument(
        "--engine",
        choices=ENGINES,
        default="spark",
        help="who does the work: spark (the default), or local: this process alone, without Java, for files "
        "of up to some million rows on this machine",
    )
    creation(args.add_argument_group("at first use, creates the warehouse; later these must agree with it"))


def stream(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark stream` and jobs/stream_events.py."""
    common(args)
    args.add_argument(
        "--source", required=True, choices=["kafka", "files", "delta"], help="where events come from"
    )
    args.add_argument("--name", help="the stream's name in the warehouse (default: the topic or the folder)")
    args.add_argument(
        "--checkpoint", metavar=FOLDER, help="this stream's own folder (default: below the warehouse)"
    )
    args.add_argument("--bootstrap", metavar="HOST:PORT", help="Kafka's servers")
    args.add_argument("--topic", help="Kafka's topic")
    args.add_argument("--path", metavar=FOLDER, help="the folder that files come into, or the Delta table")
    args.add_argument("--format", choices=["json", "csv"], default="json", help="of a record (default json)")
    args.add_argument("--columns", metavar="A,B,C", help="CSV's fields (default: the warehouse's columns)")
    args.add_argument(
        "--starting-offsets",
        default="earliest",
        metavar="WHERE",
        help="where a new Kafka stream begins: earliest (the default), latest, or Spark's JSON",
    )
    args.add_argument(
        "--max-per-batch", type=int, metavar="N", help="records (Kafka) or files of a batch at most"
    )
    args.add_argument("--trigger", metavar="SPAN", help="time between batches, such as '10 seconds'")
    args.add_argument("--once", action="store_true", help="take what is there now, and end")
    args.add_argument(
        "--ahead", metavar="SPAN", help="events further ahead of the clock are rejected (default 1 day)"
    )
    args.add_argument(
        "--max-rejected-fraction", type=float, metavar="F", help="stop where more of a batch is rejected"
    )


def maintain(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark maintain` and jobs/maintain.py."""
    common(args)
    args.add_argument(
        "--grace", metavar="SPAN", help="for this once instead of the warehouse's own grace period"
    )


def sql_server(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark sql-server` and jobs/sql_server.py."""
    args.set_defaults(parser=args)
    args.add_argument(
        "-w",
        "--warehouse",
        action="append",
        metavar="NAME=PATH",
        help="a warehouse and the name that its tables begin with; may be repeated (default: the settings "
        f"spark.tidemark.NAME, then the variable {VARIABLE}; the default of NAME is the folder's)",
    )
    args.add_argument("--host", default="127.0.0.1", help="where to listen (default 127.0.0.1)")
    args.add_argument("--port", type=int, default=0, help="the port; 0, the default, takes a free one")
    args.add_argument(
        "--users",
        metavar=FILE,
        help="ask for names and passwords: a file of lines NAME:HASH, with hashes of `openssl passwd -6`",
    )
    args.add_argument(
        "--anyone",
        action="store_true",
        help="listen beyond this machine without asking for a password",
    )
    args.add_argument(
        "--allow-all",
        action="store_true",
        help="let clients do all that Spark can, as this process's user: write, delete, run programs",
    )
    args.add_argument("--json", action="store_true", help="print one JSON document, for programs")


def window(args: argparse.ArgumentParser) -> None:
    """What every question takes."""
    common(args)
    args.add_argument(
        "--last",
        metavar="SPAN",
        help="the newest rows by event time, such as 7d, back from the newest tick of the data; a number "
        "of steps where the warehouse has no time column",
    )
    args.add_argument(
        "--between",
        nargs=2,
        metavar=("START", "END"),
        help="a window in ISO times or step numbers, the end exclusive; - leaves a side open",
    )


def question(args: argparse.ArgumentParser) -> None:
    """What every question about a measure takes."""
    window(args)
    args.add_argument("--measure", metavar="COLUMN", help="the measure (default: the warehouse's first)")
    args.add_argument(
        "--mode",
        choices=MODES,
        default="accurate",
        help="quick: from memory, error <= eps * N. accurate (the default): error <= eps * m, reads a few "
        "blocks. exact: reads the live rows too",
    )


def quantile(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark quantile`."""
    args.add_argument("phi", nargs="+", metavar="PHI", help="a number from 0 (the minimum) to 1")
    question(args)


def points(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark rank` and `tidemark cdf`."""
    args.add_argument("x", nargs="+", metavar="X", help="a number, or an ISO time for a measure of times")
    question(args)


def histogram(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark histogram`."""
    question(args)
    bins(args, 20)


def bins(args: argparse.ArgumentParser, default: int) -> None:
    """Bins by their number or their edges."""
    how = args.add_mutually_exclusive_group()
    how.add_argument(
        "--bins", type=int, default=default, metavar="N", help=f"how many bins (default {default})"
    )
    how.add_argument("--edges", nargs="+", metavar="X", help="the bins' edges instead, ascending")


def key_question(args: argparse.ArgumentParser) -> None:
    """What every question about keys takes."""
    window(args)
    args.add_argument(
        "--mode",
        choices=KEY_MODES,
        default="approximate",
        help="approximate (the default): the live rows by their sketches. exact: reads the live rows",
    )


def frequency(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark freq`."""
    args.add_argument("key", nargs="+", metavar="KEY", help="a key, written as its column's type is")
    key_question(args)


def hitters(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark hitters`."""
    args.add_argument("phi", metavar="PHI", help="a share of the rows with a key, above 0 and at most 1")
    key_question(args)


def top(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark top`."""
    how_many(args, 10)
    key_question(args)


def how_many(args: argparse.ArgumentParser, default: int) -> None:
    """A number of keys."""
    args.add_argument(
        "k", nargs="?", type=int, default=default, metavar="K", help=f"how many keys (default {default})"
    )


def watch(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark watch`."""
    args.add_argument(
        "phi", nargs="*", default=["0.5", "0.9", "0.99"], metavar="PHI", help="default: 0.5 0.9 0.99"
    )
    question(args)
    args.add_argument(
        "--every", type=float, default=2.0, metavar="SECONDS", help="time between two looks (default 2)"
    )
    args.add_argument("--times", type=int, metavar="N", help="end after N looks (default: at Ctrl-C)")
    args.add_argument(
        "--top",
        type=int,
        default=5,
        metavar="K",
        help="the K most frequent keys too, where the warehouse has a key (default 5; 0: none)",
    )


def output(args: argparse.ArgumentParser) -> None:
    """Where a picture goes."""
    args.add_argument(
        "-o", "--output", required=True, metavar=FILE, help="the picture; its ending says png, svg or pdf"
    )


def picture(args: argparse.ArgumentParser) -> None:
    """What every plot of a measure takes."""
    question(args)
    output(args)


def plot_quantiles(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark plot quantiles`."""
    picture(args)
    args.add_argument(
        "--phi", nargs="+", default=["0.5", "0.9", "0.99"], metavar="PHI", help="default: 0.5 0.9 0.99"
    )
    args.add_argument(
        "--over", default="tick", metavar="SPAN", help="tick (the default), or a span such as 7d"
    )


def plot_histogram(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark plot histogram`."""
    picture(args)
    bins(args, 40)


def plot_top(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark plot top`."""
    how_many(args, 20)
    key_question(args)
    output(args)


def completion(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark completion`."""
    args.set_defaults(parser=args)
    args.add_argument("shell", choices=SHELLS, help="the shell that is to complete words")
