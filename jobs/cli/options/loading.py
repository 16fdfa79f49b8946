"""The options of the commands that create a warehouse and bring rows into it."""

from __future__ import annotations

from tidemark.jobs.cli.options.parts import FOLDER, AfterInterrupt, OneOf, Titled, files, option
from tidemark.jobs.cli.options.shared import COMMON, ENGINE, FORMATS, MISSING_ROWS, ahead_option, of_warehouse
from tidemark.option_table import OPTIONS

CREATE = (
    *COMMON,
    *of_warehouse(OPTIONS.values()),
    option(
        "--reveal",
        action="store_true",
        help="who has the secret can tell values of private columns by their tokens",
    ),
    option(
        "--schema",
        metavar="DDL",
        help="the columns, such as 'time timestamp, delay int' (default: the columns of the first batch)",
    ),
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
    MISSING_ROWS,
    option("--batch-every", metavar="SPAN", help="cut the input by event time into batches of this length"),
    ahead_option("refuse a batch with rows"),
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
    ENGINE,
    Titled(
        "create the warehouse at first use; later they must match it",
        (
            *of_warehouse(one for one in OPTIONS.values() if one.at_load),
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
    MISSING_ROWS,
    option("--max-per-batch", type=int, metavar="N", help="at most N records (Kafka) or files per batch"),
    option("--trigger", metavar="SPAN", help="time between batches, such as '10 seconds'"),
    option("--once", action="store_true", help="process the available records, then end"),
    ahead_option("reject events"),
    option(
        "--max-rejected-fraction",
        type=float,
        metavar="F",
        help="stop if a larger share of a batch is rejected",
    ),
)
