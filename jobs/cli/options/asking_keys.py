"""The options of the commands that ask about keys, and of their picture."""

from __future__ import annotations

from tidemark.jobs.cli.options.asking import EVERY, EXPLAIN, INFO, ORDERED_GROUPS, OUTPUT, WINDOW, how_many
from tidemark.jobs.cli.options.parts import OneColumnList, option

KEY_MODES = ("approximate", "exact")
_KEY_AND_MODE = (
    option(
        "--key",
        action=OneColumnList,
        metavar="COLUMN",
        help="the key, by its column or columns: origin,dest (default: the warehouse's first)",
    ),
    option(
        "--mode",
        choices=KEY_MODES,
        default="approximate",
        help="approximate (the default): live rows by summaries. exact: reads the rows that it needs",
    ),
)
_KEYS_OF_WINDOW = (*WINDOW, EVERY, *_KEY_AND_MODE)
KEY_QUESTION = (*_KEYS_OF_WINDOW, EXPLAIN)
SELECTED_KEYS = (*WINDOW, *ORDERED_GROUPS, *_KEY_AND_MODE)
DISTINCT = (
    *SELECTED_KEYS,
    option(
        "--plan",
        action="store_true",
        help="with --mode exact: print the files, rows and bytes to be read at most, and read nothing",
    ),
)
_KEYS = option(
    "value",
    nargs="+",
    metavar="KEY",
    help="a key, written in the type of its column; of several columns ATL,SEA. Text that begins with - "
    "must follow --, after all options",
)
_SLOTS = (
    *WINDOW,
    option(
        "--slot",
        metavar="SPAN",
        help="the width of a slot (1h, 1d ...), a multiple of the tick, which is the default; in UTC, weeks "
        "start on Mondays; a number of steps if the warehouse has no time column",
    ),
    *_KEY_AND_MODE,
    EXPLAIN,
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
TOP = (how_many(10), *SELECTED_KEYS)
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
    EXPLAIN,
)
PERSISTENT = (
    option("alpha", metavar="ALPHA", help="a share of the slots of the window, above 0 and at most 1"),
    *_SLOTS,
    option("--most", type=int, metavar="ROWS", help="only keys with at most that many rows"),
)
PERSISTENCE = (_KEYS, *_SLOTS)
PLOT_TOP = (how_many(20), *_KEYS_OF_WINDOW, OUTPUT)
