"""The commands that ask about keys."""

from tidemark.jobs.cli.commands.command import Command
from tidemark.jobs.cli.options import asking_keys

COMMANDS = (
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
            "tidemark distinct -w flights --last 30d --mode exact --plan",
        ),
        asking_keys.DISTINCT,
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
)
