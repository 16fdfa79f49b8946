"""The options of the commands that ask again and again."""

from __future__ import annotations

from tidemark.jobs.cli.options.asking import EACH_ASKED, QUESTION
from tidemark.jobs.cli.options.parts import FILE, OneOf, Part, option
from tidemark.jobs.cli.options.serving import exchange
from tidemark.jobs.cli.options.shared import COMMON

PAGERANK = (
    *COMMON,
    option("source", metavar="SOURCE", help="the column of the nodes that edges begin at"),
    option("target", metavar="TARGET", help="the column of the nodes that edges lead to"),
    option("--top", type=int, default=10, metavar="K", help="how many nodes to show (default 10)"),
    option(
        "--walks",
        type=int,
        default=100,
        metavar="N",
        help="walks from each node: 4 times as many for half the error (default 100)",
    ),
    option(
        "--damping", type=float, default=0.85, metavar="D", help="how often a walk goes on (default 0.85)"
    ),
    option("--seed", type=int, default=0, metavar="N", help="of the walks (default 0)"),
    option(
        "--every", type=float, metavar="SECONDS", help="look for new edges again and again (default: once)"
    ),
    option("--times", type=int, metavar="N", help="end after N looks (default: at Ctrl-C)"),
)
WATCH = (
    option("phi", nargs="*", default=["0.5", "0.9", "0.99"], metavar="PHI", help="default: 0.5 0.9 0.99"),
    *QUESTION,
    option(
        "--every", type=float, default=2.0, metavar="SECONDS", help="seconds between two queries (default 2)"
    ),
    option("--times", type=int, metavar="N", help="end after N queries (default: at Ctrl-C)"),
    option(
        "--top",
        type=int,
        default=5,
        metavar="K",
        help="also show the K most frequent keys, if the warehouse has a key (default 5; 0: none)",
    ),
)
ALERT: tuple[Part, ...] = (
    *EACH_ASKED,
    option(
        "--when",
        action="append",
        default=[],
        metavar="CONDITION",
        help="what to tell of, such as \"quantile(0.99, last='15m') > 500\"; may be repeated",
    ),
    OneOf(
        (
            option(
                "--sites",
                type=int,
                metavar="N",
                help="ask no warehouse: so many sites look at theirs, and meet this command at --exchange",
            ),
            option(
                "--site",
                type=int,
                metavar="N",
                help="look at the warehouse for an alert with --sites, as the site of this number, from 0 "
                "on; the conditions are those of the alert",
            ),
        )
    ),
    *exchange(required=False),
    option(
        "--silent",
        default="1m",
        metavar="SPAN",
        help="with --sites: the state is stale if a site has said nothing for so long (default 1m)",
    ),
    option(
        "--theta",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="clear again only this share of the threshold on the other side of it (default 0)",
    ),
    option("--clear", metavar="LEVEL", help="instead of --theta: the level from which on it is clear again"),
    option(
        "--lag",
        default="0s",
        metavar="SPAN",
        help="windows end this long before the clock, for rows that come late (default 0s)",
    ),
    option(
        "--stale",
        metavar="SPAN",
        help="the state is stale if the newest row is older than this (default: the window)",
    ),
    option(
        "--state",
        metavar=FILE,
        help="keeps the states, and what was not delivered (default: with --run and --post a file in the "
        "user's state folder, one for these conditions)",
    ),
    OneOf(
        (
            option(
                "--run",
                dest="receiver",
                metavar="COMMAND",
                help="start this command for each change, without a shell; the change is JSON on its input",
            ),
            option("--post", metavar="URL", help="send each change to this address, as JSON"),
            option(
                "--post-from", metavar=FILE, help="the same, with the address in a file: it may have secrets"
            ),
        )
    ),
    option(
        "--form",
        choices=("json", "alertmanager"),
        default="json",
        help="of what is sent: one change, or alerts as Alertmanager's API v2 takes them (default json)",
    ),
    option(
        "--timeout",
        default="10s",
        metavar="SPAN",
        help="how long a command or an address may take; then it is tried again (default 10s)",
    ),
    option(
        "--every",
        type=float,
        default=15.0,
        metavar="SECONDS",
        help="ask at least so often; after each commit, too (default 15)",
    ),
    option(
        "--poll",
        type=float,
        default=0.5,
        metavar="SECONDS",
        help="how often to look for a commit (default 0.5)",
    ),
    option("--times", type=int, metavar="N", help="end after N looks (default: at Ctrl-C)"),
)
