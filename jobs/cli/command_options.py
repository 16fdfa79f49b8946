"""The options of the jobs and of the command `tidemark`; each is written once.

Commands share parts of their options, so those of a command are a tuple of parts. `add` adds them to a
parser. The parsed namespace keeps that parser as `parser`, so that a usage error found later is reported with
the right usage line. No module imported here reads a warehouse: help and completion stay fast.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tidemark.options import OPTIONS, Option

VARIABLE = "TIDEMARK_WAREHOUSE"
FORMATS = ("parquet", "csv", "tsv", "json", "delta")
MODES = ("quick", "accurate", "exact")
KEY_MODES = ("approximate", "exact")
ORDERS = ("value", "-value", "rows", "-rows", "error", "-error")
ENGINES = ("auto", "spark", "local")
MISSING = ("error", "bounds")
DUPLICATES = ("warn", "refuse")
SHELLS = ("bash", "zsh", "fish")
FILE, FOLDER = "FILE", "PATH"  # metavars that shells complete with file names


class Part(Protocol):
    """A part of the options of a command."""

    def add(self, args: Any) -> None:
        """Adds it to a parser, or to a group of one."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One option or argument, as argparse takes it."""

    names: tuple[str, ...]
    how: Mapping[str, Any]

    def add(self, args: Any) -> None:
        """See `Part.add`."""
        args.add_argument(*self.names, **self.how)


def option(*names: str, **how: Any) -> Argument:
    """An option with these names, or an argument with this name."""
    return Argument(names, how)


def files(name: str, text: str) -> Argument:
    """An option with this name that takes paths, and may be repeated."""
    return option(name, metavar=FOLDER, nargs="+", action="extend", help=text)


@dataclass(frozen=True, slots=True)
class OneOf:
    """Options of which one at most is given; one at least if `required`."""

    parts: Iterable[Argument]
    required: bool = False

    def add(self, args: Any) -> None:
        """See `Part.add`."""
        group = args.add_mutually_exclusive_group(required=self.required)
        for part in self.parts:
            part.add(group)


@dataclass(frozen=True, slots=True)
class Titled:
    """Options with a title of their own in the help."""

    title: str
    parts: Iterable[Argument]

    def add(self, args: Any) -> None:
        """See `Part.add`."""
        group = args.add_argument_group(self.title)
        for part in self.parts:
            part.add(group)


@dataclass(frozen=True, slots=True)
class AfterInterrupt:
    """What the command says after Ctrl-C."""

    text: str

    def add(self, args: Any) -> None:
        """See `Part.add`."""
        args.set_defaults(after_interrupt=self.text)


def add(args: argparse.ArgumentParser, parts: Iterable[Part]) -> None:
    """Adds the options of a command to its parser."""
    args.set_defaults(parser=args)
    for part in parts:
        part.add(args)


_TYPES: dict[str, Any] = {
    "names": {"action": "append"},
    "keys": {"action": "append"},
    "share": {"type": float},
    "number": {"type": int},
}


# The options that `alter` sets.
ALTERED = tuple(one.name for one in OPTIONS.values() if one.is_altered and one.kind not in ("names", "keys"))


def _of_warehouse(options: Iterable[Option], *, with_defaults: bool = True) -> tuple[Argument, ...]:
    """The options that the command line has, with the help and the default of their rows."""
    return tuple(
        option(
            one.flag,
            metavar=one.metavar,
            help=one.help + (one.default_text(" (default {})") if with_defaults else ""),
            **_TYPES.get(one.kind, {}),
        )
        for one in options
        if one.flag is not None
    )


KEY_VALUE = "KEY=VALUE"
# If it is omitted the namespace has no attribute, so that `tidemark -w W load` keeps W.
WAREHOUSE = option(
    "-w",
    "--warehouse",
    metavar=FOLDER,
    default=argparse.SUPPRESS,
    help=f"the warehouse's folder or URI (default: the variable {VARIABLE})",
)
_STORE = (
    option(
        "--storage-option",
        action="append",
        metavar=KEY_VALUE,
        help="an option of the object store, such as AWS_REGION=eu-central-1; may be repeated. Other users "
        "of the machine see command lines: write secrets into a file",
    ),
    option(
        "--storage-options",
        metavar=FILE,
        help="a file of such options: a line KEY=VALUE for each, # comments",
    ),
)
_JSON = option("--json", action="store_true", help="print one JSON document, for programs")
COMMON = (WAREHOUSE, *_STORE, _JSON)
_ENGINE = option(
    "--engine",
    choices=ENGINES,
    default="auto",
    help="auto (the default): this process without Java for up to 256 MB of files or ten million "
    "rows, Spark for more, for what it alone reads, or where a session is there. Or spark, or local",
)


def _ahead(what: str) -> Argument:
    return option(
        "--ahead",
        metavar="SPAN",
        help=f"{what} further ahead of the clock than this (default 1 day); any: take every time",
    )


CREATE = (
    *COMMON,
    *_of_warehouse(OPTIONS.values()),
    option(
        "--schema",
        metavar="DDL",
        help="the columns, such as 'time timestamp, delay int' (default: the columns of the first batch)",
    ),
)
_MISSING = option(
    "--missing",
    choices=("error", "insert"),
    default="error",
    help="of changes: what to do if a row that is to leave is not there (default: error)",
)
LOAD = (
    *COMMON,
    AfterInterrupt(
        "What was printed as loaded is loaded. The batch in progress counts whole or not at "
        "all. Run the same command again: it goes on where this one stopped."
    ),
    OneOf(
        (
            files(
                "--input",
                "files, folders of files, or patterns of them such as 'in/**/*.csv', or one Delta table; may "
                "be repeated: all together are the batch",
            ),
            option(
                "--from-stream",
                action="store_true",
                help="load the rows that streams appended since the last load",
            ),
            files(
                "--changes",
                "instead a change feed, rows with _change_type as Delta has them, or JSON lines of Debezium: "
                "the batch is a correction, as `tidemark correct --changes` makes it",
            ),
        ),
        required=True,
    ),
    option("--format", choices=FORMATS, help="the input's format (default: by the file names)"),
    option("--batch", metavar="ID", help="the batch's name: loading it again changes nothing"),
    _MISSING,
    option("--batch-every", metavar="SPAN", help="cut the input by event time into batches of this length"),
    _ahead("refuse a batch with rows"),
    option(
        "--again",
        action="store_true",
        help="a batch that was unloaded may come again with the same rows",
    ),
    option(
        "--refuse-overlap",
        action="store_true",
        help="refuse a batch with the same rows as an earlier one, or nearly; else a warning names both",
    ),
    option(
        "--evolve",
        action="store_true",
        help="add the columns of the input that the warehouse lacks, and widen those that are wider in the "
        "input; else both are refused",
    ),
    option(
        "-v",
        "--verbose",
        action="store_true",
        help="also print the runs of each measure, and how long each phase took",
    ),
    _ENGINE,
    Titled(
        "create the warehouse at first use; later they must match it",
        (
            *_of_warehouse(one for one in OPTIONS.values() if one.at_load),
            option(
                "--type",
                action="append",
                metavar="COLUMN=TYPE",
                help="the type of a column of CSV or JSON, such as zip=int; may be repeated. Otherwise keys "
                "are text, and other columns have the type that all of their texts are",
            ),
        ),
    ),
)
_JOIN = (
    option(
        "--exchange",
        required=True,
        metavar=FOLDER,
        help="a folder or an address of an object store that all places can reach",
    ),
    option("--topic", required=True, help="what this is about: the same at all places, new each time"),
    option("--secret", required=True, metavar=FILE, help="a file of 16 to 64 bytes, the same at all places"),
    option(
        "--poll",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="how often to look for messages (default 1)",
    ),
    option("--timeout", type=float, default=600.0, metavar="SECONDS", help="when to give up (default 600)"),
)


def _function(name: str, does: str) -> Argument:
    return option(
        name,
        required=True,
        metavar="MODULE:FUNCTION",
        help=f"a function that {does}, of a module in the current folder or on Python's path",
    )


SITE_MAP = (
    *COMMON,
    option("--site", type=int, required=True, metavar="N", help="the number of this site, from 0 on"),
    _function("--map", "gives pairs (key, value) of a batch of rows"),
    _function("--combine", "makes two values of a key one"),
    _ENGINE,
    *_JOIN,
)
SITE_REDUCE = (
    *_STORE,
    _JSON,
    option("--sites", type=int, required=True, metavar="N", help="how many sites there are"),
    _function("--reduce", "makes the values of all sites for a key one"),
    *_JOIN,
)
PAGERANK = (
    *COMMON,
    option("source", metavar="SOURCE", help="the column of the nodes that edges begin at"),
    option("target", metavar="TARGET", help="the column of the nodes that edges lead to"),
    option("--top", type=int, default=10, metavar="K", help="how many nodes to show (default 10)"),
    option(
        "--walks",
        type=int,
        default=100,
        metavar="N",
        help="walks from each node: 4 times as many for half the error (default 100)",
    ),
    option(
        "--damping", type=float, default=0.85, metavar="D", help="how often a walk goes on (default 0.85)"
    ),
    option("--seed", type=int, default=0, metavar="N", help="of the walks (default 0)"),
    option(
        "--every", type=float, metavar="SECONDS", help="look for new edges again and again (default: once)"
    ),
    option("--times", type=int, metavar="N", help="end after N looks (default: at Ctrl-C)"),
)
ALTER: tuple[Part, ...] = (
    *COMMON,
    AfterInterrupt(
        "Questions are answered as before. Run the same command again: it goes on where this one stopped."
    ),
    option("--add-measure", metavar="COLUMN", help="a column to answer quantiles of"),
    option("--add-key", metavar="COLUMN", help="a column to count, or several: origin,dest"),
    option("--add-group", metavar="COLUMN", help="a column to ask measures by, or several: origin,dest"),
    option("--drop-measure", metavar="COLUMN", help="a measure, but not the only one"),
    option("--drop-key", metavar="COLUMN", help="a key that is no group"),
    option("--drop-group", metavar="COLUMN", help="a group; its key stays"),
    option(
        "--widen",
        action="append",
        metavar="COLUMN=TYPE",
        help="a wider type of a column, such as qty=bigint; may be repeated",
    ),
    *_of_warehouse((OPTIONS[name] for name in ALTERED), with_defaults=False),
    _ENGINE,
)
_CHANGE = (
    option("--dry-run", action="store_true", help="say what would be removed, and change nothing"),
    option("-v", "--verbose", action="store_true", help="also print the rows of each step"),
    _ENGINE,
)
_REMOVAL = (
    option(
        "--request",
        metavar="NAME",
        help="a name of this call: the same command again, after a crash, finishes it and changes no more",
    ),
    *_CHANGE,
)
_AFTER_REMOVAL = AfterInterrupt(
    "The rows have left, or have not: run the same command again, it does what is missing. With --request it "
    "removes no more than the first time."
)
UNLOAD = (
    *COMMON,
    _AFTER_REMOVAL,
    OneOf(
        (
            option("--batch", help="the name of the batch"),
            option("--source", help="a stream, of which --batches are unloaded"),
        ),
        required=True,
    ),
    option(
        "--batches",
        nargs=2,
        type=int,
        metavar=("FIRST", "LAST"),
        help="the numbers of the stream's batches, both inclusive",
    ),
    *_REMOVAL,
)
_TIMES = option(
    "--between",
    nargs=2,
    metavar=("START", "END"),
    help="only rows of this time may leave: ISO times, END exclusive, - leaves a side open. Files without "
    "such rows are not read",
)
DELETE = (
    *COMMON,
    _AFTER_REMOVAL,
    option(
        "--where",
        metavar="EXPRESSION",
        help="rows for which this is true are deleted, such as \"user = 'x'\"; those where it is NULL stay",
    ),
    files(
        "--keys",
        "files with some columns of the warehouse: rows that equal one of theirs in all these columns are "
        "deleted; with --where, those for which it is true, too",
    ),
    _TIMES,
    option("--format", choices=FORMATS, help="the format of --keys (default: by the file names)"),
    option(
        "--purge",
        action="store_true",
        help="forget the rows, and all that were removed before: a grace later no file has them",
    ),
    option(
        "--grace",
        metavar="SPAN",
        help="with --purge: maintain at once, with this grace; 0s while nothing reads or loads",
    ),
    *_REMOVAL,
)
CORRECT = (
    *COMMON,
    AfterInterrupt(
        "The new rows have taken the place of the old ones, or have not: run the same command again, it does "
        "what is missing."
    ),
    option("--batch", metavar="ID", required=True, help="the correction's name: it is done once"),
    files("--input", "files of the new rows, as of a load"),
    files("--before", "files of the rows that leave, as they are"),
    option(
        "--on",
        metavar="COLUMN",
        nargs="+",
        action="extend",
        help="columns that identify a row: the one with the values of a new row leaves",
    ),
    files(
        "--changes",
        "instead: a change feed, rows with _change_type as Delta has them, or JSON lines of Debezium",
    ),
    option("--where", metavar="EXPRESSION", help="only rows for which this is true may leave"),
    _TIMES,
    _MISSING,
    option("--format", choices=FORMATS, help="the format of the files (default: by their names)"),
    *_CHANGE,
)
EXPIRE = (
    *COMMON,
    _AFTER_REMOVAL,
    option(
        "--before",
        metavar="TIME",
        help="rows with an earlier time expire (default: by the retention of the warehouse, and the clock)",
    ),
    *_REMOVAL,
)
RESTORE = (
    *COMMON,
    AfterInterrupt("What came back is there once. Run the same command again: it brings the rest."),
    OneOf(
        (
            option("--removal", type=int, metavar="N", help="its number, as --json of its call has it"),
            option("--step", type=int, metavar="N", help="undo all unloads and deletes after this step"),
        ),
        required=True,
    ),
    option("--dry-run", action="store_true", help="say what would come back, and change nothing"),
)
REPAIR = (
    *COMMON,
    AfterInterrupt("What was made again stays. Run the same command again: it goes on."),
    option("--dry-run", action="store_true", help="say what would be done, and change nothing"),
    _ENGINE,
)
COPY = (
    option(
        "places",
        nargs="+",
        metavar=FOLDER,
        help="the warehouse, unless -w names it, and the new folder or URI",
    ),
    *COMMON,
    option(
        "--to-storage-option",
        action="append",
        metavar=KEY_VALUE,
        help="an option of the object store that gets the copy (default: those of the warehouse)",
    ),
    option("--to-storage-options", metavar=FILE, help="a file of such options"),
    option("--no-verify", action="store_true", help="do not read the copy to check every invariant"),
    AfterInterrupt("What was copied stays. Run the same command again: it goes on."),
)
STREAM = (
    *COMMON,
    option("--source", required=True, choices=["kafka", "files", "delta"], help="the source of the events"),
    option("--name", help="the stream's name in the warehouse (default: the topic or the folder)"),
    option(
        "--checkpoint",
        metavar=FOLDER,
        help="the folder of this stream's checkpoint (default: in the warehouse)",
    ),
    option("--bootstrap", metavar="HOST:PORT", help="the Kafka servers"),
    option("--topic", help="the Kafka topic"),
    option("--path", metavar=FOLDER, help="the folder of incoming files, or the Delta table"),
    option("--format", choices=["json", "csv"], default="json", help="the record format (default json)"),
    option(
        "--columns", metavar="A,B,C", help="the fields of CSV in order (default: the warehouse's columns)"
    ),
    option(
        "--starting-offsets",
        default="earliest",
        metavar="WHERE",
        help="where a new Kafka stream starts: earliest (the default), latest, or offsets in Spark's JSON",
    ),
    option(
        "--starting-version",
        type=int,
        metavar="N",
        help="the version of the Delta table where a new stream starts (default: its rows, then what comes)",
    ),
    option(
        "--changes",
        action="store_true",
        help="the stream is a change feed: that of the Delta table, or JSON as Debezium writes it; each "
        "batch is one correction",
    ),
    _MISSING,
    option("--max-per-batch", type=int, metavar="N", help="at most N records (Kafka) or files per batch"),
    option("--trigger", metavar="SPAN", help="time between batches, such as '10 seconds'"),
    option("--once", action="store_true", help="process the available records, then end"),
    _ahead("reject events"),
    option(
        "--max-rejected-fraction",
        type=float,
        metavar="F",
        help="stop if a larger share of a batch is rejected",
    ),
)
MAINTAIN = (
    *COMMON,
    AfterInterrupt("No row was lost or changed. Run the same command again to do the rest."),
    option("--grace", metavar="SPAN", help="the grace period of this call, instead of the warehouse's"),
    _ENGINE,
)
_LISTENS = (
    option("--host", default="127.0.0.1", help="the address to listen on (default 127.0.0.1)"),
    option("--port", type=int, default=0, help="the port; 0 (the default) selects a free one"),
)
SQL_SERVER = (
    option(
        "-w",
        "--warehouse",
        action="append",
        metavar="NAME=PATH",
        help="a warehouse and the prefix of its tables; may be repeated (default: the settings "
        f"spark.tidemark.NAME, then the variable {VARIABLE}; NAME defaults to the folder's name)",
    ),
    *_STORE,
    *_LISTENS,
    option(
        "--users",
        metavar=FILE,
        help="require user names and passwords; a file of lines NAME:HASH, hashes by `openssl passwd -6`",
    ),
    option("--anyone", action="store_true", help="accept clients from other machines without a password"),
    option(
        "--allow-all",
        action="store_true",
        help="let clients do everything Spark can as this process's user: write, delete, run programs",
    ),
    _JSON,
)

SERVE = (
    option(
        "-w",
        "--warehouse",
        action="append",
        metavar="NAME=PATH",
        help="a warehouse and the name by which it is asked; may be repeated (default: the variable "
        f"{VARIABLE}; NAME defaults to the folder's name). NAME.SITE=PATH, repeated, are several that are "
        "asked as one: -w flights.eu=s3://eu/flights -w flights.us=s3://us/flights",
    ),
    *_STORE,
    *_LISTENS,
    option(
        "--tokens",
        metavar=FILE,
        help="who may ask what: a file of lines that `tidemark token` writes, read again when it changes "
        "(default: one token for all, made at start and printed)",
    ),
    option("--certificate", metavar=FILE, help="speak TLS with this certificate"),
    option("--private-key", metavar=FILE, help="the key of the certificate"),
    option(
        "--behind-proxy",
        action="store_true",
        help="speak plain HTTP on an address that others reach, because a proxy in front speaks TLS",
    ),
    option(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name by which clients call the server, beside localhost and --host; may be repeated",
    ),
    option(
        "--allow-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="pages of this origin, such as https://intranet.example, may ask, too; may be repeated",
    ),
    option("--parallel", type=int, default=4, metavar="N", help="questions at the same time (default 4)"),
    option(
        "--queue",
        type=int,
        default=32,
        metavar="N",
        help="questions that wait for their turn; more are refused for the moment (default 32)",
    ),
    option(
        "--timeout",
        default="30s",
        metavar="SPAN",
        help="how long a question may take, waiting included (default 30s)",
    ),
    option(
        "--max-staleness",
        default="1s",
        metavar="SPAN",
        help="for how long an answer may miss what was committed meanwhile (default 1s)",
    ),
    option(
        "--memory",
        default="256MB",
        metavar="BYTES",
        help="the memory for decoded rows of each warehouse (default 256MB)",
    ),
    option(
        "--metrics-phi",
        action="append",
        type=float,
        metavar="PHI",
        help="a quantile that /metrics tells of each measure; may be repeated (default 0.5, 0.9, 0.99)",
    ),
    option(
        "--metrics-last",
        metavar="SPAN",
        help="the window of these quantiles, back from the newest tick (default: all rows)",
    ),
    _JSON,
)
TOKEN = (
    option("name", metavar="NAME", help="who gets the token, a word"),
    option(
        "--grant",
        action="append",
        required=True,
        metavar="WAREHOUSE=RIGHTS",
        help="rights in a warehouse, * for every one: aggregates, rows, sql, metrics, separated by commas; "
        "may be repeated",
    ),
    option(
        "--tokens", required=True, metavar=FILE, help="the file that gets the line; the token is not in it"
    ),
    _JSON,
)

_AT = option(
    "--at",
    metavar="MOMENT",
    help="ask the warehouse as it was after a step, given by its number, or at an ISO time, within the grace",
)
_EACH_ASKED = (
    option(
        "-w",
        "--warehouse",
        action="append",
        metavar=FOLDER,
        default=argparse.SUPPRESS,
        help=f"the warehouse's folder or URI (default: the variable {VARIABLE}). Repeat it to ask several "
        "warehouses as one, each with a name if you like: -w eu=s3://eu/flights -w us=s3://us/flights",
    ),
    *COMMON[1:],
    option(
        "--missing",
        choices=MISSING,
        default="error",
        help="of several warehouses: what quantiles and ranks do while the store of one does not answer "
        "(default error; bounds: they are bounded by what was read of it last)",
    ),
    option(
        "--duplicates",
        choices=DUPLICATES,
        default="warn",
        help="of several warehouses: what is done about batches that two of them have (default warn)",
    ),
)
_ASKED = (*_EACH_ASKED, _AT)
INFO = _ASKED
HISTORY = (
    *COMMON,
    _AT,
    option("--newest", type=int, metavar="N", help="only the N newest steps (default: all)"),
)
_WINDOW = (
    *_ASKED,
    option(
        "--last",
        metavar="SPAN",
        help="the newest rows by event time, such as 7d, counted back from the newest tick of the data; a "
        "number of steps if the warehouse has no time column",
    ),
    option(
        "--as-of",
        metavar="TIME",
        help="with --last: count back from this ISO time or step number, exclusive",
    ),
    option(
        "--between",
        nargs=2,
        metavar=("START", "END"),
        help="a window in ISO times or step numbers, END exclusive; - leaves a side open",
    ),
)
_EVERY = option(
    "--every",
    dest="window_every",
    metavar="SPAN",
    help="one answer for each hour (1h), day (1d) ... of the window, in UTC; weeks start on Mondays; a "
    "number of steps if the warehouse has no time column",
)
_EXPLAIN = option(
    "--explain",
    action="store_true",
    help="also print how the answers were found: the way that was taken, what was read, and what each way "
    "was estimated to take",
)
_GROUPING = (
    option(
        "--where",
        action="append",
        metavar="CONDITION",
        help="only these rows: origin=ATL (repeat it for more columns, or more values of a column), or a "
        'condition such as "distance > 500", which is answered by a scan unless a declared group has its '
        "columns",
    ),
    option(
        "--by",
        metavar="COLUMN",
        help="one answer for each value of a column, or of several: origin,dest; or of an expression, by a "
        'scan: "hour(time)"',
    ),
    OneOf(
        (
            option("--top", type=int, metavar="K", help="with --by: the K groups with the most rows"),
            option(
                "--limit",
                type=int,
                metavar="N",
                help="with --by: the most groups that are answered (default 1000)",
            ),
        )
    ),
    _EVERY,
)
_ORDERED_GROUPS = (
    *_GROUPING,
    option(
        "--order",
        choices=ORDERS,
        metavar="ORDER",
        help="with --by: the order of the groups, by value, rows or error, - for the greatest first; with "
        "--top the first K of this order: --order=-value --top 20 for the slowest 20",
    ),
    option("--least-rows", type=int, metavar="N", help="with --by: leave out groups with fewer rows"),
    option(
        "--width",
        metavar="SPAN",
        help="with --every: how long each window lasts; longer ones overlap: --every 1h --width 24h",
    ),
    _EXPLAIN,
)
_QUESTION = (
    *_WINDOW,
    option(
        "--measure",
        metavar="COLUMN",
        help="the measure (default: the warehouse's first), or an expression over the columns, which a scan "
        'answers: "bytes / latency_ms"',
    ),
    option(
        "--mode",
        choices=MODES,
        default="accurate",
        help="quick: from memory, error <= eps * N. accurate (the default): reads a few blocks; error 0 "
        "while the live rows fit into memory, else <= eps * m. exact: error 0",
    ),
)


def _bins(default: int) -> OneOf:
    return OneOf(
        (
            option(
                "--bins",
                type=int,
                default=default,
                metavar="N",
                help=f"the number of bins (default {default})",
            ),
            option("--edges", nargs="+", metavar="X", help="the ascending edges of the bins instead"),
        )
    )


def _how_many(default: int, what: str = "keys") -> Argument:
    return option(
        "k", nargs="?", type=int, default=default, metavar="K", help=f"how many {what} (default {default})"
    )


QUANTILE = (
    option("phi", nargs="+", metavar="PHI", help="a number from 0 (the minimum) to 1"),
    *_QUESTION,
    *_ORDERED_GROUPS,
)
POINTS = (
    option("x", nargs="+", metavar="X", help="a number, or an ISO time for a measure of times"),
    *_QUESTION,
    *_ORDERED_GROUPS,
)
SUMMARY = (*_QUESTION, *_ORDERED_GROUPS)
EXTREMES = (_how_many(10, "numbers"), *SUMMARY)
HISTOGRAM = (*_QUESTION, *_ORDERED_GROUPS, _bins(20))
WATCH = (
    option("phi", nargs="*", default=["0.5", "0.9", "0.99"], metavar="PHI", help="default: 0.5 0.9 0.99"),
    *_QUESTION,
    option(
        "--every", type=float, default=2.0, metavar="SECONDS", help="seconds between two queries (default 2)"
    ),
    option("--times", type=int, metavar="N", help="end after N queries (default: at Ctrl-C)"),
    option(
        "--top",
        type=int,
        default=5,
        metavar="K",
        help="also show the K most frequent keys, if the warehouse has a key (default 5; 0: none)",
    ),
)
ALERT = (
    *_EACH_ASKED,
    option(
        "--when",
        action="append",
        required=True,
        metavar="CONDITION",
        help="what to tell of, such as \"quantile(0.99, last='15m') > 500\"; may be repeated",
    ),
    option(
        "--theta",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="clear again only this share of the threshold on the other side of it (default 0)",
    ),
    option("--clear", metavar="LEVEL", help="instead of --theta: the level from which on it is clear again"),
    option(
        "--lag",
        default="0s",
        metavar="SPAN",
        help="windows end this long before the clock, for rows that come late (default 0s)",
    ),
    option(
        "--stale",
        metavar="SPAN",
        help="the state is stale if the newest row is older than this (default: the window)",
    ),
    option(
        "--state",
        metavar=FILE,
        help="keeps the states, and what was not delivered (default: with --run and --post a file in the "
        "user's state folder, one for these conditions)",
    ),
    OneOf(
        (
            option(
                "--run",
                dest="receiver",
                metavar="COMMAND",
                help="start this command for each change, without a shell; the change is JSON on its input",
            ),
            option("--post", metavar="URL", help="send each change to this address, as JSON"),
            option(
                "--post-from", metavar=FILE, help="the same, with the address in a file: it may have secrets"
            ),
        )
    ),
    option(
        "--form",
        choices=("json", "alertmanager"),
        default="json",
        help="of what is sent: one change, or alerts as Alertmanager's API v2 takes them (default json)",
    ),
    option(
        "--timeout",
        default="10s",
        metavar="SPAN",
        help="how long a command or an address may take; then it is tried again (default 10s)",
    ),
    option(
        "--every",
        type=float,
        default=15.0,
        metavar="SECONDS",
        help="ask at least so often; after each commit, too (default 15)",
    ),
    option(
        "--poll",
        type=float,
        default=0.5,
        metavar="SECONDS",
        help="how often to look for a commit (default 0.5)",
    ),
    option("--times", type=int, metavar="N", help="end after N looks (default: at Ctrl-C)"),
)

_KEY_AND_MODE = (
    option(
        "--key",
        metavar="COLUMN",
        help="the key, by its column or columns: origin,dest (default: the warehouse's first)",
    ),
    option(
        "--mode",
        choices=KEY_MODES,
        default="approximate",
        help="approximate (the default): from summaries in memory. exact: reads the rows that it needs",
    ),
)
_KEYS_OF_WINDOW = (*_WINDOW, _EVERY, *_KEY_AND_MODE)
KEY_QUESTION = (*_KEYS_OF_WINDOW, _EXPLAIN)
SELECTED_KEYS = (*_WINDOW, *_ORDERED_GROUPS, *_KEY_AND_MODE)
_KEYS = option(
    "value",
    nargs="+",
    metavar="KEY",
    help="a key, written in the type of its column; of several columns ATL,SEA",
)
_SLOTS = (
    *_WINDOW,
    option(
        "--slot",
        metavar="SPAN",
        help="the width of a slot (1h, 1d ...), a multiple of the tick, which is the default; in UTC, weeks "
        "start on Mondays; a number of steps if the warehouse has no time column",
    ),
    *_KEY_AND_MODE,
    _EXPLAIN,
)


FREQUENCY = (_KEYS, *SELECTED_KEYS)
_SHARE = option("phi", metavar="PHI", help="a share of the rows that have a key, above 0 and at most 1")
HITTERS = (_SHARE, *SELECTED_KEYS)
HIERARCHY = (
    _SHARE,
    *KEY_QUESTION,
    option(
        "--separator",
        metavar="TEXT",
        help="what ends a prefix of a key that is text, such as . or /; not for dates and times",
    ),
)
TOP = (_how_many(10), *SELECTED_KEYS)
OVERLAP = (
    *INFO,
    *(
        option(
            name,
            dest=dest,
            nargs=2,
            required=True,
            metavar=("START", "END"),
            help=f"window {which} in ISO times or step numbers, END exclusive; - leaves a side open",
        )
        for name, dest, which in (("--between", "between", "a"), ("--and", "other", "b"))
    ),
    *_KEY_AND_MODE,
    _EXPLAIN,
)
PERSISTENT = (
    option("alpha", metavar="ALPHA", help="a share of the slots of the window, above 0 and at most 1"),
    *_SLOTS,
    option("--most", type=int, metavar="ROWS", help="only keys with at most that many rows"),
)
PERSISTENCE = (_KEYS, *_SLOTS)

_OUTPUT = option(
    "-o",
    "--output",
    required=True,
    metavar=FILE,
    help="the picture file; the extension selects png, svg or pdf",
)
PICTURE = (*_QUESTION, _OUTPUT)
PLOT_QUANTILES = (
    *PICTURE,
    *_GROUPING,
    option("--phi", nargs="+", default=["0.5", "0.9", "0.99"], metavar="PHI", help="default: 0.5 0.9 0.99"),
)
PLOT_HISTOGRAM = (
    *PICTURE,
    _bins(40),
    option("--log", action="store_true", help="bins of equal ratio, for heavy tails"),
    option("--upto", type=float, metavar="PHI", help="end the last bin at this quantile, such as 0.99"),
)
PLOT_TOP = (_how_many(20), *_KEYS_OF_WINDOW, _OUTPUT)
COMPLETION = (option("shell", choices=SHELLS, help="the shell to print the script for"),)


def warehouse_of(given: argparse.Namespace) -> str | dict[str, str]:
    """The warehouse of -w, else of the environment variable; a usage error if both are missing.

    Several of -w are a mapping of their names: NAME of NAME=URI, else the address.
    """
    named: Any = getattr(given, "warehouse", None) or os.environ.get(VARIABLE)
    if not named:
        given.parser.error(f"no warehouse was named. Give -w PATH, or set the variable {VARIABLE}.")
    if isinstance(named, str):
        return named
    if len(named) == 1:
        return str(named[0])
    found: dict[str, str] = {}
    for text in named:
        match = re.fullmatch(r"([\w-]+)=(.+)", text)
        name, uri = match.groups() if match else (text, text)
        if name in found:
            given.parser.error(f"-w names {name!r} twice, whose rows would count twice. Name it once.")
        found[name] = uri
    return found


def storage_options_of(given: argparse.Namespace, prefix: str = "") -> dict[str, str] | None:
    """The storage options that were given, those of the line over those of the file; None if there are none.

    prefix   "to-" for those of the store that gets a copy

    A usage error for what is no KEY=VALUE; it does not show the text, which may be a secret.
    """
    flag, attribute = f"--{prefix}storage-option", f"{prefix.replace('-', '_')}storage_option"
    file, texts = getattr(given, f"{attribute}s"), getattr(given, attribute)
    lines: list[tuple[str, str]] = []
    if file:
        try:
            content = Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            given.parser.error(f"{flag}s {file} cannot be read: {error}")
        for number, line in enumerate(content.splitlines(), 1):
            if line.strip() and not line.lstrip().startswith("#"):
                lines.append((f"line {number} of {file}", line.strip()))
    lines += [(flag, text) for text in texts or ()]
    options = {}
    for place, text in lines:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            given.parser.error(f"{place} must be KEY=VALUE, such as AWS_REGION=eu-central-1.")
        options[name.strip()] = value.strip()
    return options or None


def types_of(given: argparse.Namespace, option: str = "type") -> dict[str, str]:
    """The types of --type, or of another option, by column.

    A usage error for what is no COLUMN=TYPE, or for a column twice.
    """
    types: dict[str, str] = {}
    for text in getattr(given, option) or ():
        name, equals, kind = text.rpartition("=")
        if not equals or not name.strip() or not kind.strip() or name.strip() in types:
            given.parser.error(
                f"--{option} {text}: expected COLUMN=TYPE, such as zip=int, once for each column."
            )
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


def ahead(given: argparse.Namespace) -> dict[str, Any]:
    """The argument `ahead` of loads and streams; none without `--ahead`, which leaves the default."""
    return {} if given.ahead is None else {"ahead": None if given.ahead == "any" else given.ahead}
