"""The options of the jobs and of the command `tidemark`; each group is defined once.

Each function adds its options to a parser. The parsed namespace keeps that parser as `parser`, so that a
usage error found later is reported with the right usage line. No module imported here reads a warehouse:
help and completion stay fast.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tidemark.options import OPTIONS, Option

VARIABLE = "TIDEMARK_WAREHOUSE"
FORMATS = ("parquet", "csv", "tsv", "json", "delta")
MODES = ("quick", "accurate", "exact")
KEY_MODES = ("approximate", "exact")
ORDERS = ("value", "-value", "rows", "-rows", "error", "-error")
ENGINES = ("auto", "spark", "local")
SHELLS = ("bash", "zsh", "fish")
FILE, FOLDER = "FILE", "PATH"  # metavars that shells complete with file names


def warehouse_of(given: argparse.Namespace) -> str:
    """The warehouse of -w, else of the environment variable; a usage error if both are missing."""
    named = getattr(given, "warehouse", None) or os.environ.get(VARIABLE)
    if not named:
        given.parser.error(f"no warehouse was named. Give -w PATH, or set the variable {VARIABLE}.")
    return str(named)


def warehouse(args: argparse.ArgumentParser) -> None:
    """-w. If it is omitted the namespace has no attribute, so that `tidemark -w W load` keeps W."""
    args.add_argument(
        "-w",
        "--warehouse",
        metavar=FOLDER,
        default=argparse.SUPPRESS,
        help=f"the warehouse's folder or URI (default: the variable {VARIABLE})",
    )


def store(args: Any) -> None:
    """The options of the object store: credentials, region, endpoint."""
    args.add_argument(
        "--storage-option",
        action="append",
        metavar="KEY=VALUE",
        help="an option of the object store, such as AWS_REGION=eu-central-1; may be repeated. Other users "
        "of the machine see command lines: write secrets into a file",
    )
    args.add_argument(
        "--storage-options",
        metavar=FILE,
        help="a file of such options: a line KEY=VALUE for each, # comments",
    )


def storage_options_of(given: argparse.Namespace) -> dict[str, str] | None:
    """The storage options that were given, those of the line over those of the file; None if there are none.

    A usage error for what is no KEY=VALUE; it does not show the text, which may be a secret.
    """
    lines: list[tuple[str, str]] = []
    if given.storage_options:
        try:
            content = Path(given.storage_options).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            given.parser.error(f"--storage-options {given.storage_options} cannot be read: {error}")
        for number, line in enumerate(content.splitlines(), 1):
            if line.strip() and not line.lstrip().startswith("#"):
                lines.append((f"line {number} of {given.storage_options}", line.strip()))
    lines += [("--storage-option", text) for text in given.storage_option or ()]
    options = {}
    for place, text in lines:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            given.parser.error(f"{place} must be KEY=VALUE, such as AWS_REGION=eu-central-1.")
        options[name.strip()] = value.strip()
    return options or None


def common(args: argparse.ArgumentParser) -> None:
    """Options of every command."""
    args.set_defaults(parser=args)
    warehouse(args)
    store(args)
    args.add_argument("--json", action="store_true", help="print one JSON document, for programs")


def creation(args: Any) -> None:
    """The options that are fixed when a warehouse is created."""
    _add_options(args, [option for option in OPTIONS.values() if option.at_load])


_TYPES: dict[str, Any] = {
    "names": {"action": "append"},
    "keys": {"action": "append"},
    "share": {"type": float},
    "number": {"type": int},
}


def _add_options(args: Any, options: Iterable[Option]) -> None:
    """The options that the command line has, with the help and the default of their rows."""
    for option in options:
        if option.flag is not None:
            text = option.help + option.default_text(" (default {})")
            args.add_argument(option.flag, metavar=option.metavar, help=text, **_TYPES.get(option.kind, {}))


def types(args: Any) -> None:
    """--type: the types of columns of text that creates a warehouse."""
    args.add_argument(
        "--type",
        action="append",
        metavar="COLUMN=TYPE",
        help="the type of a column of CSV or JSON, such as zip=int; may be repeated. Otherwise keys are "
        "text, and other columns have the type that all of their texts are",
    )


def types_of(given: argparse.Namespace) -> dict[str, str]:
    """The types of --type by column; a usage error for what is no COLUMN=TYPE, or for a column twice."""
    types: dict[str, str] = {}
    for text in given.type or ():
        name, equals, kind = text.rpartition("=")
        if not equals or not name.strip() or not kind.strip() or name.strip() in types:
            given.parser.error(f"--type {text}: expected COLUMN=TYPE, such as zip=int, once for each column.")
        types[name.strip()] = kind.strip()
    return types


def creation_options(given: argparse.Namespace) -> dict[str, Any]:
    """The values of the options of the command, as keywords of `warehouse.create`; None if not given."""
    options = {}
    for option in OPTIONS.values():
        attribute = (option.flag or "").removeprefix("--").replace("-", "_")
        if hasattr(given, attribute):
            value = getattr(given, attribute)
            options[option.name] = _columns(value) if option.kind == "keys" else value
    return options


def key_columns(given: argparse.Namespace) -> list[str]:
    """The columns of the keys and groups that were given."""
    options = creation_options(given)
    return [name for role in ("keys", "groups") for columns in options[role] or () for name in columns]


def _columns(keys: list[str] | None) -> list[list[str]] | None:
    """The columns of each key, from texts such as "origin" and "origin,dest"."""
    return None if keys is None else [key.split(",") for key in keys]


def create(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark create`."""
    common(args)
    _add_options(args, OPTIONS.values())
    args.add_argument(
        "--schema",
        metavar="DDL",
        help="the columns, such as 'time timestamp, delay int' (default: the columns of the first batch)",
    )


def load(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark load` and jobs/load_batch.py."""
    common(args)
    args.set_defaults(
        after_interrupt="What was printed as loaded is loaded. The batch in progress counts whole or not at "
        "all. Run the same command again: it goes on where this one stopped."
    )
    rows = args.add_mutually_exclusive_group(required=True)
    rows.add_argument(
        "--input",
        metavar=FOLDER,
        nargs="+",
        action="extend",
        help="files, folders of files, or patterns of them such as 'in/**/*.csv', or one Delta table; may be "
        "repeated: all together are the batch",
    )
    rows.add_argument(
        "--from-stream", action="store_true", help="load the rows that streams appended since the last load"
    )
    args.add_argument("--format", choices=FORMATS, help="the input's format (default: by the file names)")
    args.add_argument("--batch", metavar="ID", help="the batch's name: loading it again changes nothing")
    args.add_argument(
        "--batch-every", metavar="SPAN", help="cut the input by event time into batches of this length"
    )
    _ahead(args, "refuse a batch with rows")
    args.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="also print the runs of each measure, and how long each phase took",
    )
    engine(args)
    at_first = args.add_argument_group("create the warehouse at first use; later they must match it")
    creation(at_first)
    types(at_first)


def _ahead(args: argparse.ArgumentParser, what: str) -> None:
    args.add_argument(
        "--ahead",
        metavar="SPAN",
        help=f"{what} further ahead of the clock than this (default 1 day); any: take every time",
    )


def ahead(given: argparse.Namespace) -> dict[str, Any]:
    """The argument `ahead` of loads and streams; none without `--ahead`, which leaves the default."""
    return {} if given.ahead is None else {"ahead": None if given.ahead == "any" else given.ahead}


def engine(args: argparse.ArgumentParser) -> None:
    """What does the work of a command."""
    args.add_argument(
        "--engine",
        choices=ENGINES,
        default="auto",
        help="auto (the default): this process without Java for up to 256 MB of files or ten million "
        "rows, Spark for more, for what it alone reads, or where a session is there. Or spark, or local",
    )


def site_map(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark sites map`."""
    common(args)
    args.add_argument(
        "--site", type=int, required=True, metavar="N", help="the number of this site, from 0 on"
    )
    _function(args, "--map", "gives pairs (key, value) of a batch of rows")
    _function(args, "--combine", "makes two values of a key one")
    engine(args)
    _exchange(args)


def site_reduce(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark sites reduce`."""
    args.set_defaults(parser=args)
    store(args)
    args.add_argument("--json", action="store_true", help="print one JSON document, for programs")
    args.add_argument("--sites", type=int, required=True, metavar="N", help="how many sites there are")
    _function(args, "--reduce", "makes the values of all sites for a key one")
    _exchange(args)


def _function(args: argparse.ArgumentParser, name: str, does: str) -> None:
    args.add_argument(
        name,
        required=True,
        metavar="MODULE:FUNCTION",
        help=f"a function that {does}, of a module in the current folder or on Python's path",
    )


def _exchange(args: argparse.ArgumentParser) -> None:
    """Where sites and who asks them meet."""
    args.add_argument(
        "--exchange",
        required=True,
        metavar=FOLDER,
        help="a folder or an address of an object store that all places can reach",
    )
    args.add_argument(
        "--topic", required=True, help="what this is about: the same at all places, new each time"
    )
    args.add_argument(
        "--secret", required=True, metavar=FILE, help="a file of 16 to 64 bytes, the same at all places"
    )
    args.add_argument(
        "--poll",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="how often to look for messages (default 1)",
    )
    args.add_argument(
        "--timeout", type=float, default=600.0, metavar="SECONDS", help="when to give up (default 600)"
    )


def pagerank(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark pagerank`."""
    common(args)
    args.add_argument("source", metavar="SOURCE", help="the column of the nodes that edges begin at")
    args.add_argument("target", metavar="TARGET", help="the column of the nodes that edges lead to")
    args.add_argument("--top", type=int, default=10, metavar="K", help="how many nodes to show (default 10)")
    args.add_argument(
        "--walks",
        type=int,
        default=100,
        metavar="N",
        help="walks from each node: 4 times as many for half the error (default 100)",
    )
    args.add_argument(
        "--damping", type=float, default=0.85, metavar="D", help="how often a walk goes on (default 0.85)"
    )
    args.add_argument("--seed", type=int, default=0, metavar="N", help="of the walks (default 0)")
    args.add_argument(
        "--every", type=float, metavar="SECONDS", help="look for new edges again and again (default: once)"
    )
    args.add_argument("--times", type=int, metavar="N", help="end after N looks (default: at Ctrl-C)")


def alter(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark alter`."""
    common(args)
    args.set_defaults(
        after_interrupt="Questions are answered as before. Run the same command again: it goes on where this "
        "one stopped."
    )
    args.add_argument("--add-key", metavar="COLUMN", help="a column to count, or several: origin,dest")
    args.add_argument(
        "--add-group", metavar="COLUMN", help="a column to ask measures by, or several: origin,dest"
    )
    engine(args)


def repair(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark repair`."""
    common(args)
    args.set_defaults(after_interrupt="What was made again stays. Run the same command again: it goes on.")
    args.add_argument("--dry-run", action="store_true", help="say what would be done, and change nothing")
    engine(args)


def stream(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark stream` and jobs/stream_events.py."""
    common(args)
    args.add_argument(
        "--source", required=True, choices=["kafka", "files", "delta"], help="the source of the events"
    )
    args.add_argument("--name", help="the stream's name in the warehouse (default: the topic or the folder)")
    args.add_argument(
        "--checkpoint",
        metavar=FOLDER,
        help="the folder of this stream's checkpoint (default: in the warehouse)",
    )
    args.add_argument("--bootstrap", metavar="HOST:PORT", help="the Kafka servers")
    args.add_argument("--topic", help="the Kafka topic")
    args.add_argument("--path", metavar=FOLDER, help="the folder of incoming files, or the Delta table")
    args.add_argument(
        "--format", choices=["json", "csv"], default="json", help="the record format (default json)"
    )
    args.add_argument(
        "--columns", metavar="A,B,C", help="the fields of CSV in order (default: the warehouse's columns)"
    )
    args.add_argument(
        "--starting-offsets",
        default="earliest",
        metavar="WHERE",
        help="where a new Kafka stream starts: earliest (the default), latest, or offsets in Spark's JSON",
    )
    args.add_argument(
        "--max-per-batch", type=int, metavar="N", help="at most N records (Kafka) or files per batch"
    )
    args.add_argument("--trigger", metavar="SPAN", help="time between batches, such as '10 seconds'")
    args.add_argument("--once", action="store_true", help="process the available records, then end")
    _ahead(args, "reject events")
    args.add_argument(
        "--max-rejected-fraction",
        type=float,
        metavar="F",
        help="stop if a larger share of a batch is rejected",
    )


def maintain(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark maintain` and jobs/maintain.py."""
    common(args)
    args.set_defaults(
        after_interrupt="No row was lost or changed. Run the same command again to do the rest."
    )
    args.add_argument(
        "--grace", metavar="SPAN", help="the grace period of this call, instead of the warehouse's"
    )
    engine(args)


def sql_server(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark sql-server` and jobs/sql_server.py."""
    args.set_defaults(parser=args)
    args.add_argument(
        "-w",
        "--warehouse",
        action="append",
        metavar="NAME=PATH",
        help="a warehouse and the prefix of its tables; may be repeated (default: the settings "
        f"spark.tidemark.NAME, then the variable {VARIABLE}; NAME defaults to the folder's name)",
    )
    store(args)
    args.add_argument("--host", default="127.0.0.1", help="the address to listen on (default 127.0.0.1)")
    args.add_argument("--port", type=int, default=0, help="the port; 0 (the default) selects a free one")
    args.add_argument(
        "--users",
        metavar=FILE,
        help="require user names and passwords; a file of lines NAME:HASH, hashes by `openssl passwd -6`",
    )
    args.add_argument(
        "--anyone",
        action="store_true",
        help="accept clients from other machines without a password",
    )
    args.add_argument(
        "--allow-all",
        action="store_true",
        help="let clients do everything Spark can as this process's user: write, delete, run programs",
    )
    args.add_argument("--json", action="store_true", help="print one JSON document, for programs")


def window(args: argparse.ArgumentParser) -> None:
    """Options of every query."""
    common(args)
    args.add_argument(
        "--last",
        metavar="SPAN",
        help="the newest rows by event time, such as 7d, counted back from the newest tick of the data; a "
        "number of steps if the warehouse has no time column",
    )
    args.add_argument(
        "--as-of",
        metavar="TIME",
        help="with --last: count back from this ISO time or step number, exclusive",
    )
    args.add_argument(
        "--between",
        nargs=2,
        metavar=("START", "END"),
        help="a window in ISO times or step numbers, END exclusive; - leaves a side open",
    )


def every(args: argparse.ArgumentParser) -> None:
    """One answer for each part of the window."""
    args.add_argument(
        "--every",
        dest="window_every",
        metavar="SPAN",
        help="one answer for each hour (1h), day (1d) ... of the window, in UTC; weeks start on Mondays; a "
        "number of steps if the warehouse has no time column",
    )


def grouping(args: argparse.ArgumentParser) -> None:
    """Which rows a query about a measure covers, and one answer for each group of them."""
    args.add_argument(
        "--where",
        action="append",
        metavar="CONDITION",
        help="only these rows: origin=ATL (repeat it for more columns, or more values of a column), or a "
        'condition such as "distance > 500", which is answered by a scan unless a declared group has its '
        "columns",
    )
    args.add_argument(
        "--by",
        metavar="COLUMN",
        help="one answer for each value of a column, or of several: origin,dest; or of an expression, by a "
        'scan: "hour(time)"',
    )
    choice = args.add_mutually_exclusive_group()
    choice.add_argument("--top", type=int, metavar="K", help="with --by: the K groups with the most rows")
    choice.add_argument(
        "--limit", type=int, metavar="N", help="with --by: the most groups that are answered (default 1000)"
    )
    every(args)


def ordered_groups(args: argparse.ArgumentParser) -> None:
    """Which rows a query about a measure covers, and which groups of them are answered in what order."""
    grouping(args)
    args.add_argument(
        "--order",
        choices=ORDERS,
        metavar="ORDER",
        help="with --by: the order of the groups, by value, rows or error, - for the greatest first; with "
        "--top the first K of this order: --order=-value --top 20 for the slowest 20",
    )
    args.add_argument(
        "--least-rows", type=int, metavar="N", help="with --by: leave out groups with fewer rows"
    )


def question(args: argparse.ArgumentParser) -> None:
    """Options of every query about a measure."""
    window(args)
    args.add_argument(
        "--measure",
        metavar="COLUMN",
        help="the measure (default: the warehouse's first), or an expression over the columns, which a scan "
        'answers: "bytes / latency_ms"',
    )
    args.add_argument(
        "--mode",
        choices=MODES,
        default="accurate",
        help="quick: from memory, error <= eps * N. accurate (the default): reads a few blocks, error <= "
        "eps * m. exact: also reads the live rows",
    )


def quantile(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark quantile`."""
    args.add_argument("phi", nargs="+", metavar="PHI", help="a number from 0 (the minimum) to 1")
    question(args)
    ordered_groups(args)


def points(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark rank` and `tidemark cdf`."""
    args.add_argument("x", nargs="+", metavar="X", help="a number, or an ISO time for a measure of times")
    question(args)
    ordered_groups(args)


def histogram(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark histogram`."""
    question(args)
    ordered_groups(args)
    bins(args, 20)


def summary(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark summary`."""
    question(args)
    ordered_groups(args)


def bins(args: argparse.ArgumentParser, default: int) -> None:
    """The number of bins, or their edges."""
    choice = args.add_mutually_exclusive_group()
    choice.add_argument(
        "--bins", type=int, default=default, metavar="N", help=f"the number of bins (default {default})"
    )
    choice.add_argument("--edges", nargs="+", metavar="X", help="the ascending edges of the bins instead")


def key_question(args: argparse.ArgumentParser) -> None:
    """Options of every query about keys in one window."""
    window(args)
    every(args)
    key_and_mode(args)


def key_and_mode(args: argparse.ArgumentParser) -> None:
    """Options of every query about keys."""
    args.add_argument(
        "--key",
        metavar="COLUMN",
        help="the key, by its column or columns: origin,dest (default: the warehouse's first)",
    )
    args.add_argument(
        "--mode",
        choices=KEY_MODES,
        default="approximate",
        help="approximate (the default): from summaries in memory. exact: reads the rows that it needs",
    )


def overlap(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark overlap`."""
    common(args)
    for name, dest, which in (("--between", "between", "a"), ("--and", "other", "b")):
        args.add_argument(
            name,
            dest=dest,
            nargs=2,
            required=True,
            metavar=("START", "END"),
            help=f"window {which} in ISO times or step numbers, END exclusive; - leaves a side open",
        )
    key_and_mode(args)


def frequency(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark freq`."""
    keys(args)
    key_question(args)


def keys(args: argparse.ArgumentParser) -> None:
    """Keys, at least one."""
    args.add_argument(
        "value",
        nargs="+",
        metavar="KEY",
        help="a key, written in the type of its column; of several columns ATL,SEA",
    )


def hitters(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark hitters`."""
    args.add_argument("phi", metavar="PHI", help="a share of the rows that have a key, above 0 and at most 1")
    key_question(args)


def hierarchy(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark hierarchy`."""
    hitters(args)
    args.add_argument(
        "--separator",
        metavar="TEXT",
        help="what ends a prefix of a key that is text, such as . or /; not for dates and times",
    )


def top(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark top`."""
    how_many(args, 10)
    key_question(args)


def persistent(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark persistent`."""
    args.add_argument(
        "alpha", metavar="ALPHA", help="a share of the slots of the window, above 0 and at most 1"
    )
    slots(args)
    args.add_argument("--most", type=int, metavar="ROWS", help="only keys with at most that many rows")


def persistence(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark persistence`."""
    keys(args)
    slots(args)


def slots(args: argparse.ArgumentParser) -> None:
    """The window of a query about keys, and its slots."""
    window(args)
    args.add_argument(
        "--slot",
        metavar="SPAN",
        help="the width of a slot (1h, 1d ...), a multiple of the tick, which is the default; in UTC, weeks "
        "start on Mondays; a number of steps if the warehouse has no time column",
    )
    key_and_mode(args)


def how_many(args: argparse.ArgumentParser, default: int) -> None:
    """The number of keys."""
    args.add_argument(
        "k", nargs="?", type=int, default=default, metavar="K", help=f"the number of keys (default {default})"
    )


def watch(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark watch`."""
    args.add_argument(
        "phi", nargs="*", default=["0.5", "0.9", "0.99"], metavar="PHI", help="default: 0.5 0.9 0.99"
    )
    question(args)
    args.add_argument(
        "--every", type=float, default=2.0, metavar="SECONDS", help="seconds between two queries (default 2)"
    )
    args.add_argument("--times", type=int, metavar="N", help="end after N queries (default: at Ctrl-C)")
    args.add_argument(
        "--top",
        type=int,
        default=5,
        metavar="K",
        help="also show the K most frequent keys, if the warehouse has a key (default 5; 0: none)",
    )


def output(args: argparse.ArgumentParser) -> None:
    """The file that a picture is written to."""
    args.add_argument(
        "-o",
        "--output",
        required=True,
        metavar=FILE,
        help="the picture file; the extension selects png, svg or pdf",
    )


def picture(args: argparse.ArgumentParser) -> None:
    """Options of every plot of a measure."""
    question(args)
    output(args)


def plot_quantiles(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark plot quantiles`."""
    picture(args)
    grouping(args)
    args.add_argument(
        "--phi", nargs="+", default=["0.5", "0.9", "0.99"], metavar="PHI", help="default: 0.5 0.9 0.99"
    )


def plot_histogram(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark plot histogram`."""
    picture(args)
    bins(args, 40)
    args.add_argument("--log", action="store_true", help="bins of equal ratio, for heavy tails")
    args.add_argument(
        "--upto", type=float, metavar="PHI", help="end the last bin at this quantile, such as 0.99"
    )


def plot_top(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark plot top`."""
    how_many(args, 20)
    key_question(args)
    output(args)


def completion(args: argparse.ArgumentParser) -> None:
    """The options of `tidemark completion`."""
    args.set_defaults(parser=args)
    args.add_argument("shell", choices=SHELLS, help="the shell to print the script for")
