"""The options of the commands that ask about a warehouse and its measures, and of their pictures."""

from __future__ import annotations

import argparse

from tidemark.jobs.cli.options.parts import FILE, FOLDER, Argument, OneColumnList, OneOf, option
from tidemark.jobs.cli.options.shared import COMMON, VARIABLE

MODES = ("quick", "accurate", "exact")
ORDERS = ("value", "-value", "rows", "-rows", "error", "-error")
MISSING = ("error", "bounds")
DUPLICATES = ("warn", "refuse")
_AT = option(
    "--at",
    metavar="MOMENT",
    help="ask the warehouse as it was after a step, given by its number, or at an ISO time, within the grace",
)
EACH_ASKED = (
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
        help="of several warehouses: what quantiles, sums and counts of keys do while one does not answer "
        "(default error; bounds: they are bounded by what was read of it last)",
    ),
    option(
        "--duplicates",
        choices=DUPLICATES,
        default="warn",
        help="of several warehouses: what is done about batches that two of them have (default warn)",
    ),
)
_ASKED = (*EACH_ASKED, _AT)
INFO = _ASKED
HISTORY = (
    *COMMON,
    _AT,
    option("--newest", type=int, metavar="N", help="only the N newest steps (default: all)"),
)
WINDOW = (
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
EVERY = option(
    "--every",
    dest="window_every",
    metavar="SPAN",
    help="one answer for each hour (1h), day (1d) ... of the window, in UTC; weeks start on Mondays; a "
    "number of steps if the warehouse has no time column",
)
EXPLAIN = option(
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
        action=OneColumnList,
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
    EVERY,
)
ORDERED_GROUPS = (
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
    EXPLAIN,
)
QUESTION = (
    *WINDOW,
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
        help="quick: error <= eps * N, mostly from memory. accurate (the default): reads a few blocks; "
        "error 0 while the live rows fit into memory, else <= eps * m. exact: error 0",
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


def how_many(default: int, what: str = "keys") -> Argument:
    """The argument K, which may be left out."""
    return option(
        "k", nargs="?", type=int, default=default, metavar="K", help=f"how many {what} (default {default})"
    )


QUANTILE = (
    option("phi", nargs="+", metavar="PHI", help="a number from 0 (the minimum) to 1"),
    *QUESTION,
    *ORDERED_GROUPS,
)
POINTS = (
    option("x", nargs="+", metavar="X", help="a number, or an ISO time for a measure of times"),
    *QUESTION,
    *ORDERED_GROUPS,
)
SUMMARY = (*QUESTION, *ORDERED_GROUPS)
EXTREMES = (how_many(10, "numbers"), *SUMMARY)
HISTOGRAM = (*QUESTION, *ORDERED_GROUPS, _bins(20))
OUTPUT = option(
    "-o",
    "--output",
    required=True,
    metavar=FILE,
    help="the picture file; the extension selects png, svg or pdf",
)
PICTURE = (*QUESTION, OUTPUT)
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
