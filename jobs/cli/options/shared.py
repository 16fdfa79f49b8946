"""Options that several kinds of commands share."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from tidemark.jobs.cli.options.parts import FILE, FOLDER, Argument, option
from tidemark.option_table import Option

VARIABLE = "TIDEMARK_WAREHOUSE"
FORMATS = ("parquet", "csv", "tsv", "json", "delta")
ENGINES = ("auto", "spark", "local")
_TYPES: dict[str, Any] = {
    "names": {"action": "append"},
    "keys": {"action": "append"},
    "indexes": {"action": "append"},
    "private": {"action": "append"},
    "share": {"type": float},
    "number": {"type": int},
}


def of_warehouse(options: Iterable[Option], *, with_defaults: bool = True) -> tuple[Argument, ...]:
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
STORE = (
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
JSON = option("--json", action="store_true", help="print one JSON document, for programs")
COMMON = (WAREHOUSE, *STORE, JSON)
ENGINE = option(
    "--engine",
    choices=ENGINES,
    default="auto",
    help="auto (the default): this process without Java for up to 256 MB of files or ten million "
    "rows, Spark for more, for what it alone reads, or where a session is there. Or spark, or local",
)


def ahead_option(what: str) -> Argument:
    """The option that says how far ahead of the clock a row may be, and what happens to other rows."""
    return option(
        "--ahead",
        metavar="SPAN",
        help=f"{what} further ahead of the clock than this (default 1 day); any: take every time",
    )


MISSING_ROWS = option(
    "--missing",
    choices=("error", "insert"),
    default="error",
    help="of changes: what to do if a row that is to leave is not there (default: error)",
)
