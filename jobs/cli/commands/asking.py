"""The commands that describe a warehouse, ask about its measures, and watch the answers."""

from tidemark.jobs.cli.commands.command import Command
from tidemark.jobs.cli.options import asking, watching

COMMANDS = (
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
            """\
tidemark alert --sites 3 --when "quantile(0.99, last='15m') > 500" --post-from hook.url \\
      --exchange s3://shared/exchange --topic slow --secret secret.key""",
            """\
tidemark alert --site 0 -w flights --exchange s3://shared/exchange --topic slow --secret secret.key""",
        ),
        watching.ALERT,
        "tidemark.jobs.ask.alert:run",
        needs_warehouse=False,
    ),
)
