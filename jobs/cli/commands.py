"""The table of the commands of `tidemark`: name, help texts, and the function that runs each.

The folder options/ defines their options. A new command is a new entry of COMMANDS. A name of two words is a
subcommand: `plot cdf` belongs to `plot`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark.jobs.cli import exit_codes
from tidemark.jobs.cli.options import asking, asking_keys, changing, loading, serving, shared, watching
from tidemark.jobs.cli.options.parts import Part

ABOUT = """\
Quantiles over all loaded data and over everything that has arrived since the last load. Each answer has
certified bounds. History is stored in Delta Lake; the live side is summarised in sketches.
"""

ENDING = f"""\
Name the warehouse with -w or with the environment variable {shared.VARIABLE}. With --json a command
prints one line of JSON: times in ISO 8601 with their zone, decimals as text, NaN and infinities as "NaN",
"Infinity" and "-Infinity".

{exit_codes.RULE}"""


@dataclass(frozen=True, slots=True)
class Command:
    """A command. `options` are its arguments; `run` is "module:function".

    A command without `options` and `run` only groups subcommands.
    """

    name: str
    summary: str
    text: str
    examples: tuple[str, ...]
    options: Sequence[Part] | None = None
    run: str = ""
    needs_warehouse: bool = True


KAFKA = """\
PYSPARK_SUBMIT_ARGS='--packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 pyspark-shell' \\
      tidemark stream -w flights --source kafka --bootstrap localhost:9092 --topic flights"""

ALERT_SITES = """\
tidemark alert --sites 3 --when "quantile(0.99, last='15m') > 500" --post-from hook.url \\
      --exchange s3://shared/exchange --topic slow --secret secret.key"""
ALERT_SITE = """\
tidemark alert --site 0 -w flights --exchange s3://shared/exchange --topic slow --secret secret.key"""

SITES_MAP = """\
tidemark sites map -w flights --site 0 --map words:split --combine words:add \\
      --exchange s3://shared/exchange --topic monday --secret secret.key"""
SITES_REDUCE = """\
tidemark sites reduce --sites 3 --reduce words:total \\
      --exchange s3://shared/exchange --topic monday --secret secret.key"""

SERVE_TLS = """\
tidemark serve -w flights=/data/flights --tokens tokens --host 0.0.0.0 --port 8443 \\
      --certificate site.crt --private-key site.key --allow-host tidemark.example"""

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
            KAFKA,
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
        "delete files past their retention, compact small files",
        """\
Deletes files that no commit references and files past their retention (the grace), and compacts small files.
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
    Command(
        "info",
        "steps, runs, live rows, bytes and versions",
        "Shows steps, runs by level, live batches and rows, bytes and table versions of the warehouse.",
        ("tidemark info -w flights", "tidemark info -w flights --json | jq .live_rows"),
        asking.INFO,
        "tidemark.jobs.ask.quantiles:info",
    ),
    Command(
        "history",
        "every step: its batches, rows and times, and who loaded it",
        """\
Lists the steps, one for each load: when it was planned, by whom, on which machine and with which version, the
rows that came, how many of them left again by unloads and deletes, the times of its rows, and its batches. A
step that no load has finished is marked as planned.""",
        ("tidemark history -w flights", "tidemark history -w flights --newest 10 --json | jq .steps"),
        asking.HISTORY,
        "tidemark.jobs.ask.step_history:run",
    ),
    Command(
        "quantile",
        "quantiles with certified intervals",
        """\
The PHI-quantile is the smallest value such that at least ceil(PHI * N) rows are at most that value. The exact
quantile is certainly between `low` and `high`. The rank of `value` among the N rows is certainly between
`rank_lo` and `rank_hi`, and at most `error_bound` ranks away from the requested one. Windows are whole ticks;
the last line shows the window.""",
        (
            "tidemark quantile 0.99 -w flights",
            "tidemark quantile 0.5 0.9 0.99 -w flights --measure delay --last 14d",
            "tidemark quantile 0.5 -w flights --between 2001-02-01 2001-03-01 --mode exact",
            "tidemark quantile 0.99 -w flights --json | jq '.answers[0].value'",
        ),
        asking.QUANTILE,
        "tidemark.jobs.ask.quantiles:quantile",
    ),
    Command(
        "rank",
        "how many rows are at most X",
        """\
Counts the rows that are at most X: `rank` is the estimate, `rank_lo` and `rank_hi` are certain bounds. NaN is
not counted for any X. Put numbers such as -1e3 after a --.""",
        (
            "tidemark rank 60 -w flights",
            "tidemark rank -w flights --last 7d -- -15 0 15",
        ),
        asking.POINTS,
        "tidemark.jobs.ask.quantiles:rank",
    ),
    Command(
        "cdf",
        "the share of rows that are at most X",
        "The share of rows that are at most X: `cdf` is the estimate, `cdf_lo` and `cdf_hi` are bounds.",
        ("tidemark cdf 0 15 60 -w flights", "tidemark cdf 0 -w flights --between 2001-03-01 -"),
        asking.POINTS,
        "tidemark.jobs.ask.quantiles:cdf",
    ),
    Command(
        "histogram",
        "counts in bins",
        """\
Counts rows in bins of equal width from the minimum to the maximum, or between given edges. `count` is the
estimate for a bin, `lo` and `hi` are certain bounds. A bin includes its left edge; the last bin includes both
edges.""",
        (
            "tidemark histogram -w flights --bins 10",
            "tidemark histogram -w flights --edges -60 0 15 60 1440 --measure delay",
        ),
        asking.HISTOGRAM,
        "tidemark.jobs.ask.quantiles:histogram",
    ),
    Command(
        "summary",
        "count, sum, mean, minimum, maximum and variance",
        """\
Counts the finite numbers of a measure, and gives their sum, mean, variance and standard deviation, exactly:
doubles are rounded once, at the end. `min` and `max` may be infinite. NaN, infinities and NULL are counted
apart. With --where and --by it is a scan of the rows of the window.""",
        (
            "tidemark summary -w flights --measure delay --last 14d",
            "tidemark summary -w flights --by origin --top 5 --every 7d",
            "tidemark summary -w flights --where 'distance > 500' --json | jq .mean",
        ),
        asking.SUMMARY,
        "tidemark.jobs.ask.quantiles:summary",
    ),
    Command(
        "largest",
        "the greatest numbers",
        """\
The K greatest numbers of a measure, greatest first, of all rows or of each group and window. Equal numbers
count apart, and NaN is no number. The answers are exact.""",
        (
            "tidemark largest 3 -w flights --measure delay --by origin",
            "tidemark largest -w flights --last 7d --where 'distance > 500'",
        ),
        asking.EXTREMES,
        "tidemark.jobs.ask.quantiles:largest",
    ),
    Command(
        "smallest",
        "the least numbers",
        "The K least numbers of a measure, least first; all else is as for `largest`.",
        ("tidemark smallest 3 -w flights --measure delay --by origin --every 7d",),
        asking.EXTREMES,
        "tidemark.jobs.ask.quantiles:smallest",
    ),
    Command(
        "alert",
        "tell when an answer passes a threshold",
        """\
Asks the conditions after each commit, and at least every 15 seconds, and tells what changed. A state is
certain if the whole certified interval is beyond the threshold, possible if a part of it is, clear if none
is, and stale if no new rows come or the question fails. What was not delivered is delivered again, also after
a crash, with the same id. With --sites, commands with --site look at warehouses that lie apart, and say
something only when it may change the state.""",
        (
            "tidemark alert -w flights --when \"quantile(0.99, last='15m') > 500\" --theta 0.1",
            "tidemark alert -w flights --when \"frequency('ATL', last='1h') > 1000\" --run 'python page.py'",
            "tidemark alert -w web --when \"burn(300, 0.999, last='1h') > 14.4\" --post-from hook.url",
            "tidemark alert -w web --when \"quantile(0.99, last='5m', by='origin', for='2m') > 900\"",
            ALERT_SITES,
            ALERT_SITE,
        ),
        watching.ALERT,
        "tidemark.jobs.ask.alert:run",
        needs_warehouse=False,
    ),
    Command(
        "freq",
        "how many rows have a given key",
        """\
Counts the rows of each KEY. `count` is the estimate; `in_history` is the exact count in history. `hi` is a
certain upper bound, `lo` is a lower bound that holds with the confidence in the last line. If the two are
equal, the count is exact. Write keys in the type of the key column: 42, 2001-03-19, 12.50, true; binary keys
as hexadecimal digits. The last line counts the rows whose key is NULL. Put keys that begin with a dash after
a --.""",
        (
            "tidemark freq ATL ORD -w flights --last 14d",
            "tidemark freq ATL -w flights --mode exact --json | jq '.answers[0].count'",
            "tidemark freq -w readings -- -1e3",
        ),
        asking_keys.FREQUENCY,
        "tidemark.jobs.ask.keys:frequency",
    ),
    Command(
        "top",
        "the most frequent keys",
        """\
The K most frequent keys in descending order. `lo` and `hi` are certain bounds of the count of each. `certain`
means that no key outside the list has more rows. With --where and --by the answers are exact, by a scan of
the rows of the window.""",
        (
            "tidemark top -w flights",
            "tidemark top 5 -w flights --last 7d --mode exact",
            "tidemark top 3 -w flights --where 'delay > 60' --by 'hour(time)'",
        ),
        asking_keys.TOP,
        "tidemark.jobs.ask.keys:top",
    ),
    Command(
        "hitters",
        "every key with at least a given share of the rows",
        """\
Every key with at least a share PHI of the rows that have a key, in descending order. No such key is missed.
`lo` and `hi` are certain bounds of its count. `certain` means that the key surely reaches the share; the
others may reach it.""",
        ("tidemark hitters 0.01 -w flights", "tidemark hitters 0.001 -w flights --between 2001-03-01 -"),
        asking_keys.HITTERS,
        "tidemark.jobs.ask.keys:hitters",
    ),
    Command(
        "hierarchy",
        "every prefix of keys with at least a given share of the rows",
        """\
Every prefix of keys with at least a share PHI of the rows that have a key: networks of addresses, folders of
paths, years and months of dates. No such prefix is missed. `lo` and `hi` are certain bounds of its count,
`rest` are the rows that no longer prefix of the list has.""",
        (
            "tidemark hierarchy 0.1 --key day -w visits",
            "tidemark hierarchy 0.05 --separator / --key path -w visits --last 7d",
            "tidemark hierarchy 0.01 --separator . -w flights --json | jq '.answers[0].prefix'",
        ),
        asking_keys.HIERARCHY,
        "tidemark.jobs.ask.keys:hierarchy",
    ),
    Command(
        "distinct",
        "how many distinct keys there are",
        """\
The number of distinct keys. It lies between `lo` and `hi` with the confidence in the last line, and certainly
between `least` and `most`. NULL is no key. Mode exact counts all keys of the window. With --where and --by
the answers are exact, by a scan of the rows of the window.""",
        (
            "tidemark distinct -w flights --last 30d",
            "tidemark distinct -w flights --last 30d --every 1d",
            "tidemark distinct -w flights --key origin --mode exact --json | jq .count",
            "tidemark distinct -w flights --by dest --order=-value --top 5",
        ),
        asking_keys.SELECTED_KEYS,
        "tidemark.jobs.ask.keys:distinct",
    ),
    Command(
        "new-keys",
        "how many keys were never seen before",
        """\
The number of distinct keys of the window that no row before the window has. The window needs a start. The
columns are those of `tidemark distinct`.""",
        ("tidemark new-keys -w flights --last 1d", "tidemark new-keys -w flights --last 7d --every 1d"),
        asking_keys.KEY_QUESTION,
        "tidemark.jobs.ask.keys:new_keys",
    ),
    Command(
        "overlap",
        "how many keys two windows share",
        """\
The numbers of distinct keys in both of two windows, in window a alone and in window b alone. The columns are
those of `tidemark distinct`.""",
        (
            "tidemark overlap -w flights --between 2001-03-01 2001-03-08 --and 2001-03-08 2001-03-15",
            "tidemark overlap -w flights --between - 2001-02-01 --and 2001-02-01 - --mode exact",
        ),
        asking_keys.OVERLAP,
        "tidemark.jobs.ask.keys:overlap",
    ),
    Command(
        "persistent",
        "the keys that are there nearly all the time",
        """\
Every key that has rows in at least a share ALPHA of the slots of the window, most slots first. No such key is
missed. `lo` and `hi` are certain bounds of the number of its slots. `certain` means that the key surely
reaches the share; the others may reach it. With --most only keys that have few rows: they are persistent and
rare.""",
        (
            "tidemark persistent 0.8 -w flights --last 30d",
            "tidemark persistent 1 -w flights --last 8w --slot 1w --most 100",
        ),
        asking_keys.PERSISTENT,
        "tidemark.jobs.ask.keys:persistent",
    ),
    Command(
        "persistence",
        "in how many slots of the window a key has rows",
        """\
For each key the number of slots of the window in which it has rows, with certain bounds `lo` and `hi`. Keys
are written as for `tidemark freq`.""",
        (
            "tidemark persistence ATL ORD -w flights --last 30d",
            "tidemark persistence ATL -w flights --slot 7d --mode exact --json | jq '.answers[0].slots'",
        ),
        asking_keys.PERSISTENCE,
        "tidemark.jobs.ask.keys:persistence",
    ),
    Command(
        "plot",
        "pictures of answers with their certified bands",
        "Draws answers into a file in the format of its extension: png, svg or pdf. Needs matplotlib.",
        (
            "tidemark plot cdf -w flights -o delays.png",
            "tidemark plot quantiles -w flights -o week.svg --every 7d",
            "tidemark plot top -w flights -o origins.png",
        ),
    ),
    Command(
        "plot cdf",
        "the share of rows that are at most x",
        "Draws the share of rows that are at most x, between the quantiles 0.005 and 0.995.",
        ("tidemark plot cdf -w flights -o delays.png --last 14d --mode quick",),
        asking.PICTURE,
        "tidemark.jobs.ask.pictures:cdf",
    ),
    Command(
        "plot quantiles",
        "quantiles over time",
        "Draws quantiles over time: one answer per tick of the window, or per span given by --every.",
        ("tidemark plot quantiles -w flights -o week.png --phi 0.5 0.99 --every 7d",),
        asking.PLOT_QUANTILES,
        "tidemark.jobs.ask.pictures:quantiles",
    ),
    Command(
        "plot histogram",
        "counts in bins",
        """\
Draws counts in bins of equal width, of equal ratio (--log), or between given edges. --log and --upto show a
measure with a long tail, which would be one bar otherwise.""",
        (
            "tidemark plot histogram -w flights -o delays.png --bins 30 --upto 0.99",
            "tidemark plot histogram -w flights -o distances.png --measure distance --log",
        ),
        asking.PLOT_HISTOGRAM,
        "tidemark.jobs.ask.pictures:histogram",
    ),
    Command(
        "plot top",
        "the most frequent keys",
        """\
Draws the most frequent keys as bars: the exact count in history and the live count, each with its certain
interval.""",
        ("tidemark plot top 10 -w flights -o origins.png --last 7d",),
        asking_keys.PLOT_TOP,
        "tidemark.jobs.ask.pictures:top",
    ),
    Command(
        "watch",
        "quantiles and top keys that are redrawn as data arrives",
        """\
Repeats the query every few seconds until Ctrl-C, or --times times. If the output is not a terminal, the
results are printed one below the other. With --json it prints one document per repetition, with the keys in
its field `top`.""",
        ("tidemark watch -w flights", "tidemark watch 0.99 0.999 -w flights --last 1d --every 5 --times 12"),
        watching.WATCH,
        "tidemark.jobs.ask.watch:run",
    ),
    Command(
        "pagerank",
        "ranks of the nodes of a graph whose edges are rows",
        """\
The PageRank of the nodes of a graph, of which each row of the warehouse is an edge. It is found by random
walks. With --every, new edges are looked for again and again, and only the walks that they change are drawn
anew. `lo` and `hi` hold for all nodes together with the confidence in the last line. Rows with a NULL are no
edges, and an edge counts once. The walks are in memory, about seven nodes each.""",
        (
            "tidemark pagerank origin dest -w flights",
            "tidemark pagerank page link -w crawl --every 10 --top 20",
        ),
        watching.PAGERANK,
        "tidemark.jobs.pagerank:run",
    ),
    Command(
        "sites",
        "map, combine and reduce over the warehouses of several sites",
        """\
Runs functions of your own over warehouses that lie apart: map and combine at each site, reduce where the
answer is wanted. Only what was combined travels, as files of a folder or object store that all can reach.""",
        (SITES_MAP, SITES_REDUCE),
    ),
    Command(
        "sites map",
        "map and combine the rows of a site",
        """\
Maps the rows of the warehouse and combines the values of each key, in Spark's tasks or in this process, then
tells the result to who asks, and ends when it was taken. map gets a pyarrow.RecordBatch and gives pairs (key,
value); combine gets two values of a key and gives one, in any order and nesting. Keys and values are what
JSON has.""",
        (SITES_MAP,),
        serving.SITE_MAP,
        "tidemark.jobs.site_reduce:run_map",
    ),
    Command(
        "sites reduce",
        "reduce what the sites tell",
        """\
Waits for what all sites tell and prints the reduced value of each key. reduce gets a key and the list of its
values, at most one of each site.""",
        (SITES_REDUCE,),
        serving.SITE_REDUCE,
        "tidemark.jobs.site_reduce:run_reduce",
        needs_warehouse=False,
    ),
    Command(
        "sql-server",
        "serve warehouses to JDBC clients",
        """\
Starts Spark's Thrift server for JDBC and ODBC clients, such as beeline and dashboards. Every session has the
functions and views of the warehouses: NAME_quantile, NAME_events ... Prints the JDBC address and serves until
SIGTERM or Ctrl-C. Clients can only query: statements that write, read files by path or call Java are refused.
Clients from other machines need a user name and a password.""",
        (
            "tidemark sql-server -w flights=/data/flights -w clicks=/data/clicks --port 10000",
            "tidemark sql-server -w flights=/data/flights --host 0.0.0.0 --port 10000 --users users",
            "TIDEMARK_WAREHOUSE=/data/flights tidemark sql-server",
        ),
        serving.SQL_SERVER,
        "tidemark.jobs.sql_server:run",
        needs_warehouse=False,
    ),
    Command(
        "serve",
        "serve warehouses over HTTP, for programs and dashboards",
        """\
Answers all questions over HTTP as JSON, read only, until SIGTERM or Ctrl-C. /openapi.json describes the
addresses. Every question needs a token. Without --tokens, a token with all rights is made at start and
printed. Clients from other machines need TLS, by --certificate or by a proxy in front of the server.""",
        (
            "tidemark serve -w flights=/data/flights -w clicks=/data/clicks --port 8080",
            SERVE_TLS,
        ),
        serving.SERVE,
        "tidemark.jobs.serve.start:run",
        needs_warehouse=False,
    ),
    Command(
        "mcp",
        "answer the questions of an assistant, over MCP",
        """\
Answers an assistant that speaks the Model Context Protocol and starts this command, over stdin and stdout,
until stdin ends. The tools are the questions, with typed parameters and without SQL, and `describe`, which
tells the names of measures, keys and columns. Every answer has its bounds. Only the warehouses that are named
here can be asked.""",
        (
            "tidemark mcp -w flights=/data/flights",
            "tidemark mcp -w flights=/data/flights --tool describe --tool quantile --tool top",
        ),
        serving.MCP,
        "tidemark.jobs.serve.start:run_mcp",
        needs_warehouse=False,
    ),
    Command(
        "token",
        "make a token for clients of `tidemark serve`",
        """\
Makes a token, adds a line with its hash and its rights to a file, and prints the token, which is stored
nowhere. To take a token back, delete its line: a running server reads the file again.""",
        (
            "tidemark token grafana --grant flights=aggregates,metrics --tokens tokens",
            "tidemark token ann --grant '*=aggregates,rows,sql,metrics' --tokens tokens",
        ),
        serving.TOKEN,
        "tidemark.jobs.serve.start:run_token",
        needs_warehouse=False,
    ),
    Command(
        "secret",
        "make a secret for private columns, or a token with it, or tell the value of a token",
        """\
`secret new` makes a secret: print it, or write it into a new file. Keep a copy: without it no name can be
asked for. With --after it follows an older one, for `tidemark alter --rotate-secret`. `secret token` reads a
value from the standard input, a line, and prints its token, by the secret in the file that
TIDEMARK_SECRET_FILE names, or in what the command of TIDEMARK_SECRET_COMMAND prints. `secret reveal` reads a
token of a warehouse that was created with --reveal, and prints the value.""",
        (
            "tidemark secret new --to secret",
            "tidemark secret new --after secret --to secrets",
            "echo alice | TIDEMARK_SECRET_FILE=secret tidemark secret token",
        ),
        serving.SECRET,
        "tidemark.jobs.secret:run",
        needs_warehouse=False,
    ),
    Command(
        "completion",
        "print a completion script for bash, zsh or fish",
        "Prints a completion script for the shell, generated from the options of this version.",
        (
            'eval "$(tidemark completion bash)"      # in ~/.bashrc',
            'eval "$(tidemark completion zsh)"       # in ~/.zshrc, below compinit',
            "tidemark completion fish | source       # in ~/.config/fish/config.fish",
        ),
        serving.COMPLETION,
        "tidemark.jobs.cli.completion:run",
        needs_warehouse=False,
    ),
)
