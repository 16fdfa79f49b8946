"""The options of the commands that alter a warehouse, take rows out or back in, repair, copy and maintain."""

from __future__ import annotations

from tidemark.jobs.cli.options.parts import FILE, FOLDER, AfterInterrupt, OneOf, Part, files, option
from tidemark.jobs.cli.options.shared import COMMON, ENGINE, FORMATS, KEY_VALUE, MISSING_ROWS, of_warehouse
from tidemark.option_table import OPTIONS, SETTINGS

ALTER: tuple[Part, ...] = (
    *COMMON,
    AfterInterrupt(
        "Questions are answered as before. Run the same command again: it goes on where this one stopped."
    ),
    option("--add-measure", metavar="COLUMN", help="a column to answer quantiles of"),
    option("--add-key", metavar="COLUMN", help="a column to count, or several: origin,dest"),
    option("--add-group", metavar="COLUMN", help="a column to ask measures by, or several: origin,dest"),
    option(
        "--add-index",
        metavar="COLUMN[=COLUMNS]",
        help="a column by whose values rows are found without a scan, and those that the index has beside it",
    ),
    option("--drop-measure", metavar="COLUMN", help="a measure, but not the only one"),
    option("--drop-key", metavar="COLUMN", help="a key that is no group"),
    option("--drop-group", metavar="COLUMN", help="a group; its key stays"),
    option("--drop-index", metavar="COLUMN", help="a column whose rows are found by scans from now on"),
    option(
        "--widen",
        action="append",
        metavar="COLUMN=TYPE",
        help="a wider type of a column, such as qty=bigint; may be repeated",
    ),
    option(
        "--rename",
        action="append",
        metavar="OLD=NEW",
        help="another name of a column, alone in a call; may be repeated",
    ),
    option(
        "--rotate-secret",
        action="store_true",
        help="give private columns tokens of the newest secret, alone in a call",
    ),
    *of_warehouse((OPTIONS[name] for name in SETTINGS), with_defaults=False),
    ENGINE,
)
_CHANGE = (
    option("--dry-run", action="store_true", help="say what would be removed, and change nothing"),
    option("-v", "--verbose", action="store_true", help="also print the rows of each step"),
    ENGINE,
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
    MISSING_ROWS,
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
    ENGINE,
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
MAINTAIN = (
    *COMMON,
    AfterInterrupt("No row was lost or changed. Run the same command again to do the rest."),
    option("--grace", metavar="SPAN", help="the grace period of this call, instead of the warehouse's"),
    ENGINE,
)
