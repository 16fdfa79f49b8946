"""The options of servers, of their tokens, of the work of several sites, and of completion."""

from __future__ import annotations

from tidemark.jobs.cli.options.parts import FILE, FOLDER, Argument, option
from tidemark.jobs.cli.options.shared import COMMON, ENGINE, JSON, STORE, VARIABLE

SHELLS = ("bash", "zsh", "fish")


def exchange(*, required: bool) -> tuple[Argument, ...]:
    """The options of the exchange in which places meet."""
    return (
        option(
            "--exchange",
            required=required,
            metavar=FOLDER,
            help="a folder or an address of an object store that all places can reach",
        ),
        option(
            "--topic", required=required, help="what this is about: the same at all places, new each time"
        ),
        option(
            "--secret",
            required=required,
            metavar=FILE,
            help="a file of 16 to 64 bytes, the same at all places",
        ),
    )


_JOIN = (
    *exchange(required=True),
    option(
        "--poll",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="how often to look for messages (default 1)",
    ),
    option("--timeout", type=float, default=600.0, metavar="SECONDS", help="when to give up (default 600)"),
)


def _function(name: str, does: str) -> Argument:
    return option(
        name,
        required=True,
        metavar="MODULE:FUNCTION",
        help=f"a function that {does}, of a module in the current folder or on Python's path",
    )


SITE_MAP = (
    *COMMON,
    option("--site", type=int, required=True, metavar="N", help="the number of this site, from 0 on"),
    _function("--map", "gives pairs (key, value) of a batch of rows"),
    _function("--combine", "makes two values of a key one"),
    ENGINE,
    *_JOIN,
)
SITE_REDUCE = (
    *STORE,
    JSON,
    option("--sites", type=int, required=True, metavar="N", help="how many sites there are"),
    _function("--reduce", "makes the values of all sites for a key one"),
    *_JOIN,
)
_LISTENS = (
    option("--host", default="127.0.0.1", help="the address to listen on (default 127.0.0.1)"),
    option("--port", type=int, default=0, help="the port; 0 (the default) selects a free one"),
)
SQL_SERVER = (
    option(
        "-w",
        "--warehouse",
        action="append",
        metavar="NAME=PATH",
        help="a warehouse and the prefix of its tables; may be repeated (default: the settings "
        f"spark.tidemark.NAME, then the variable {VARIABLE}; NAME defaults to the folder's name)",
    ),
    *STORE,
    *_LISTENS,
    option(
        "--users",
        metavar=FILE,
        help="require user names and passwords; a file of lines NAME:HASH, hashes by `openssl passwd -6`",
    ),
    option("--anyone", action="store_true", help="accept clients from other machines without a password"),
    option(
        "--allow-all",
        action="store_true",
        help="let clients do everything Spark can as this process's user: write, delete, run programs",
    ),
    JSON,
)
_SERVED = option(
    "-w",
    "--warehouse",
    action="append",
    metavar="NAME=PATH",
    help="a warehouse and the name by which it is asked; may be repeated (default: the variable "
    f"{VARIABLE}; NAME defaults to the folder's name). NAME.SITE=PATH, repeated, are several that are "
    "asked as one: -w flights.eu=s3://eu/flights -w flights.us=s3://us/flights",
)
_LIMITS = (
    option("--parallel", type=int, default=4, metavar="N", help="questions at the same time (default 4)"),
    option(
        "--queue",
        type=int,
        default=32,
        metavar="N",
        help="questions that wait for their turn; more are refused for the moment (default 32)",
    ),
    option(
        "--timeout",
        default="30s",
        metavar="SPAN",
        help="how long a question may take, waiting included (default 30s)",
    ),
    option(
        "--max-staleness",
        default="1s",
        metavar="SPAN",
        help="for how long an answer may miss what was committed meanwhile (default 1s)",
    ),
    option(
        "--memory",
        metavar="BYTES",
        help="the memory for decoded rows of each warehouse (default: a tenth of the machine's for all)",
    ),
)
SERVE = (
    _SERVED,
    *STORE,
    *_LISTENS,
    option(
        "--tokens",
        metavar=FILE,
        help="who may ask what: a file of lines that `tidemark token` writes, read again when it changes "
        "(default: one token for all, made at start and printed)",
    ),
    option("--certificate", metavar=FILE, help="speak TLS with this certificate"),
    option("--private-key", metavar=FILE, help="the key of the certificate"),
    option(
        "--behind-proxy",
        action="store_true",
        help="speak plain HTTP on an address that others reach, because a proxy in front speaks TLS",
    ),
    option(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name by which clients call the server, beside localhost and --host; may be repeated",
    ),
    option(
        "--allow-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="pages of this origin, such as https://intranet.example, may ask, too; may be repeated",
    ),
    *_LIMITS,
    option(
        "--metrics-phi",
        action="append",
        type=float,
        metavar="PHI",
        help="a quantile that /metrics tells of each measure; may be repeated (default 0.5, 0.9, 0.99)",
    ),
    option(
        "--metrics-last",
        metavar="SPAN",
        help="the window of these quantiles, back from the newest tick (default: all rows)",
    ),
    JSON,
)
SECRET = (
    option("action", choices=("new", "token", "reveal"), help="what to make"),
    option("--sealed", action="store_true", help="a token of a warehouse that was created with --reveal"),
    option("--to", metavar=FILE, help="a new file for the secret, which its owner alone may read"),
    option(
        "--after",
        metavar=FILE,
        help="the file of the secret that the new one is to wrap; the new file has both",
    ),
    JSON,
)
MCP = (
    _SERVED,
    *STORE,
    option(
        "--tool",
        action="append",
        default=[],
        metavar="NAME",
        help="offer only this tool; may be repeated (default: describe, and one for each question)",
    ),
    *_LIMITS,
)
TOKEN = (
    option("name", metavar="NAME", help="who gets the token, a word"),
    option(
        "--grant",
        action="append",
        required=True,
        metavar="WAREHOUSE=RIGHTS",
        help="rights in a warehouse, * for every one: aggregates, rows, sql, metrics, files, separated by "
        "commas; may be repeated",
    ),
    option(
        "--tokens", required=True, metavar=FILE, help="the file that gets the line; the token is not in it"
    ),
    JSON,
)
COMPLETION = (option("shell", choices=SHELLS, help="the shell to print the script for"),)
