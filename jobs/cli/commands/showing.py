"""The commands that draw answers, or repeat them as data arrives."""

from tidemark.jobs.cli.commands.command import Command
from tidemark.jobs.cli.options import asking, asking_keys, watching

COMMANDS = (
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
        "Draws quantiles over time: one answer per tick of the window, or per --every.",
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
anew. `lo` and `hi` hold for all nodes at once, with the confidence in the last line. Rows with a NULL are no
edges, and an edge counts once. The walks are in memory, about seven nodes each.""",
        (
            "tidemark pagerank origin dest -w flights",
            "tidemark pagerank page link -w crawl --every 10 --top 20",
        ),
        watching.PAGERANK,
        "tidemark.jobs.pagerank:run",
    ),
)
