"""The commands that create, load, change and keep a warehouse."""

from tidemark.jobs.cli.commands.command import Command
from tidemark.jobs.cli.options import changing, loading, shared

COMMANDS = (
    Command(
        "create",
        "create a warehouse",
        """\
Creates a warehouse. If it exists with the same options, nothing changes; `tidemark alter` changes some.
Without --schema the first batch defines the columns and their types. A first `tidemark load` with --measure
also creates the warehouse.""",
        (
            "tidemark create -w flights --measure delay --key origin --time time",
            "tidemark create -w clicks --measure ms --time at --schema 'at timestamp, ms double'",
        ),
        loading.CREATE,
        "tidemark.jobs.create:run",
    ),
    Command(
        "alter",
        "add or drop a measure, key, group or index of a warehouse with data, widen a column, set an option",
        """\
Adds a measure, key, group or index, and builds its history from the table of events, step by step. Questions
about a new measure or key are refused until that is done; others go on, as do loads and streams. Questions
about what was dropped are refused; `tidemark maintain` deletes its files a grace later. --widen writes the
table of events once; answers stay. After a crash, run it again.""",
        (
            "tidemark alter -w flights --add-group origin",
            "tidemark alter -w flights --add-key origin,dest --engine spark",
            "tidemark alter -w flights --add-measure distance --drop-measure delay",
            "tidemark alter -w flights --kappa 5 --grace '14 days'",
        ),
        changing.ALTER,
        "tidemark.jobs.alter:run",
    ),
    Command(
        "load",
        "load a batch of files, or the streamed rows, into history",
        """\
Loads a batch of files as one step of history. Loading the same --batch again changes nothing; the same name
with other rows is an error. After a crash, run the command again. --from-stream loads the rows that streams
appended since the last load. Small files are loaded by this process, larger ones by Spark.""",
        (
            "tidemark load -w flights --input 2001-03-19.parquet --batch 2001-03-19 --measure delay",
            "tidemark load -w flights --input backfill/ --batch all --batch-every '7 days'",
            "tidemark load -w flights --from-stream",
            "tidemark load -w flights --engine spark --input 2001-03-20.parquet --batch 2001-03-20",
        ),
        loading.LOAD,
        "tidemark.jobs.load_batch:run",
    ),
    Command(
        "stream",
        "stream events into the live side",
        """\
Streams events until SIGTERM or Ctrl-C, then finishes the current batch and ends. When it is started again it
continues where it stopped. Records that do not parse, and events too far in the future, go to the table
`rejected` with the reason. With --json it prints one document per batch. Kafka needs an extra Spark package:
set PYSPARK_SUBMIT_ARGS, or use spark-submit --packages with jobs/stream_events.py.""",
        (
            "tidemark stream -w flights --source files --path incoming --format csv",
            "tidemark stream -w flights --source delta --path table --once",
            """\
PYSPARK_SUBMIT_ARGS='--packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 pyspark-shell' \\
      tidemark stream -w flights --source kafka --bootstrap localhost:9092 --topic flights""",
        ),
        loading.STREAM,
        "tidemark.jobs.stream_events:run",
    ),
    Command(
        "unload",
        "take a batch out again that was loaded by mistake",
        """\
Takes a batch out: its rows leave the table of events and every answer. Its name may be loaded again, with
other rows, or with the same ones by `tidemark load --again`. With --source a range of the batches of a stream
leaves; their numbers stay used. After a crash, run it again.""",
        (
            "tidemark unload -w flights --batch 2001-03-19",
            "tidemark unload -w flights --batch 2001-03-19 --dry-run",
            "tidemark unload -w flights --source web --batches 7 9",
        ),
        changing.UNLOAD,
        "tidemark.jobs.remove_rows:run_unload",
    ),
    Command(
        "delete",
        "delete rows that match a condition, or have given keys",
        """\
Deletes the rows for which a condition is true, or that equal a row of a file in the columns of the file, from
the table of events and from every answer. The condition is in DuckDB's language over the columns, as
--where of questions takes it. Files that no table names any more are deleted by `tidemark maintain`, a grace
later. With --purge no trace stays of these rows, nor of those that were removed before, and a certificate is
printed. After a crash, run it again.""",
        (
            "tidemark delete -w flights --keys cancelled.csv",
            "tidemark delete -w flights --where \"origin = 'XXX'\" --dry-run",
            "tidemark delete -w flights --where 'delay < -1000' --request clean-2001",
            "tidemark delete -w orders --where \"user = 'ann'\" --purge --request ticket-17",
        ),
        changing.DELETE,
        "tidemark.jobs.remove_rows:run_delete",
    ),
    Command(
        "correct",
        "put rows in the place of others, in one step",
        """\
Puts new rows in the place of old ones: a reader sees the old ones or the new ones, never both. The old rows
are given as they are, with --before, or found by the columns that identify a row, with --on; a change feed
has both. A row that is not there, or there twice, is an error, and nothing is changed. After a crash, run it
again.""",
        (
            "tidemark correct -w flights --batch fix-17 --input fixed.csv --on flight day",
            "tidemark correct -w flights --batch fix-18 --input new.parquet --before old.parquet",
            "tidemark correct -w flights --batch feed-2001-03-20 --changes changes.jsonl",
        ),
        changing.CORRECT,
        "tidemark.jobs.remove_rows:run_correct",
    ),
    Command(
        "expire",
        "take rows out that are older than they are kept",
        """\
Takes the rows out whose time is before a moment, from the table of events and from every answer. The moment
only rises. Rows without a time stay; rows that come late leave with the next call. A warehouse with a
retention does it after each `tidemark load`, by the clock. After a crash, run it again.""",
        (
            "tidemark expire -w flights --before 2000-01-01 --dry-run",
            "tidemark alter -w flights --retention '400 days'",
            "tidemark expire -w flights",
        ),
        changing.EXPIRE,
        "tidemark.jobs.remove_rows:run_expire",
    ),
    Command(
        "restore",
        "bring back rows that an unload or a delete took out",
        """\
Brings back the rows of an unload or a delete, or of all after a step, while their old files are there: for
the grace. The rows of removal 5 come back as the batch 'restored removal 5', once. After a crash, run it
again.""",
        (
            "tidemark restore -w flights --removal 5 --dry-run",
            "tidemark restore -w flights --step 120",
        ),
        changing.RESTORE,
        "tidemark.jobs.remove_rows:run_restore",
    ),
    Command(
        "maintain",
        "delete files past the grace, compact small files",
        """\
Deletes files past the grace: those that left their table, and those that no commit references. Compacts small
files.
A --grace that is shorter than the warehouse's own is safe only while no reader and no load runs.""",
        ("tidemark maintain -w flights", "tidemark maintain -w flights --grace '2 days'"),
        changing.MAINTAIN,
        "tidemark.jobs.maintain:run",
    ),
    Command(
        "verify",
        "check every invariant on the real tables",
        """\
Reads the whole warehouse once, without a JVM, and reports for each invariant whether it holds. Ends with exit
code 1 if an invariant is broken. Writers may run at the same time: a check whose tables changed during every
attempt is reported as busy, and does not count as broken.""",
        ("tidemark verify -w flights",),
        shared.COMMON,
        "tidemark.jobs.verify:run",
    ),
    Command(
        "repair",
        "make again from the table of events what is damaged",
        """\
Looks at every file of runs, marks, ledger and steps, and makes again from the table of events what is damaged
or missing. Loads, streams and questions may go on. The table of events itself is never changed: only a
backup has what is damaged there. The command names it and ends with exit code 1. After a crash, run it
again.""",
        (
            "tidemark repair -w flights --dry-run",
            "tidemark repair -w flights",
            "tidemark repair -w flights --engine spark --json | jq .actions",
        ),
        changing.REPAIR,
        "tidemark.jobs.repair:run",
    ),
    Command(
        "copy",
        "copy a warehouse to another folder or store",
        """\
Copies one moment of the warehouse, while others load, stream and maintain, to a folder or an address where
there is nothing, and verifies the copy. After it was ended, the same command goes on. The copy has the newest
version of each table and no earlier ones. Ends with exit code 1 if the copy breaks an invariant.""",
        (
            "tidemark copy flights /backup/flights",
            "tidemark copy flights s3://backup/flights --to-storage-options backup.options",
        ),
        changing.COPY,
        "tidemark.jobs.copy_warehouse:run",
        needs_warehouse=False,
    ),
)
