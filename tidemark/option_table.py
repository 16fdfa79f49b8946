"""The table of a warehouse's options: one row for each option.

From a row follow the keyword of `create`, its check, the property of the table `events`, the comparison with
what a caller gives later, whether `alter` takes it, and the option and the help of the command line. A new
option is a row here, with its line in `GivenOptions`, and a field of `warehouse.settings.options.Options`,
for the code that uses it; if `alter` takes it, also a keyword of `warehouse.alter`. Warehouses that were
created before lack its property: the row has a default and `is_later`, and they have the default.

Nothing is imported here: the help of the command line is fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

# The module that makes conditions of text. The warehouse finds it by its name: it must not import DuckDB.
CONDITIONS = "tidemark.query.scans.row_conditions"


class GivenOptions(TypedDict, total=False):
    """The options as a caller gives them to `create`; None is as if it was not given.

    key: a key, as if it stood first in `keys`.
    """

    key: str | Sequence[str] | None
    keys: Sequence[str | Sequence[str]] | None
    groups: Sequence[str | Sequence[str]] | None
    index: str | Sequence[str | Mapping[str, Any]] | None
    companions: Mapping[str, tuple[str, str]] | None
    time: str | None
    tick: str | None
    eps: float | None
    kappa: int | None
    grace: str | None
    retention: str | None
    key_eps: float | None
    key_delta: float | None
    private: bool | Sequence[str] | None


@dataclass(frozen=True, slots=True)
class Option:
    """A row.

    name      the keyword of `create`
    kind      what its values are, a name of `warehouse/settings/option_kinds.py`
    about     what it is, for Python: lines of the documentation of `create`
    field     the field of Options, by default as `name`
    property  the property of `events`, without the prefix; by default as `name`. Durations are stored in
              microseconds
    default   as a caller writes it; None: it may be left out
    least     the least number, of a kind that counts
    flag      the option of the command line; None: it has none
    help      one line for the command line, without the default
    metavar   what stands for its value there
    at_load   whether `tidemark load` takes it, too, which creates a warehouse at first use
    is_told   whether `tidemark create` prints it
    is_altered
              whether `alter` changes it
    is_later  whether it came after version 0.2.0: without its property, a warehouse has the default
    """

    name: str
    kind: str
    about: str
    field: str = ""
    property: str = ""
    default: Any = None
    least: int = 0
    flag: str | None = None
    help: str = ""
    metavar: str | None = None
    at_load: bool = False
    is_told: bool = True
    is_altered: bool = False
    is_later: bool = False

    def __post_init__(self) -> None:
        for name in ("field", "property"):
            object.__setattr__(self, name, getattr(self, name) or self.name)

    def default_text(self, words: str) -> str:
        """The words about the default, such as ' (default {})'; nothing if there is none."""
        return "" if self.default is None else words.format(self.default)


OPTIONS = {
    option.name: option
    for option in (
        Option(
            "measures",
            "names",
            "the numeric columns to answer quantile queries on; at least one",
            field="measure_names",
            flag="--measure",
            help="a numeric column, date or timestamp; may be repeated",
            metavar="COLUMN",
            at_load=True,
            is_altered=True,
        ),
        Option(
            "keys",
            "keys",
            "the keys to answer frequency queries on: each a column, or a list of columns whose values "
            "together are the key; `key` gives the first one. None: no frequencies",
            field="own_keys",
            flag="--key",
            help="a column whose values are counted, or several: origin,dest; may be repeated",
            metavar="COLUMN",
            at_load=True,
            is_altered=True,
        ),
        Option(
            "groups",
            "keys",
            "keys by which the measures are sorted, too: quantiles of one value of such a key, or of each "
            "value, take milliseconds. Each group adds a sorted copy of every measure",
            field="group_names",
            flag="--group",
            help="a key by which measures are asked, such as origin or origin,dest; may be repeated",
            metavar="COLUMN",
            at_load=True,
            is_altered=True,
        ),
        Option(
            "index",
            "indexes",
            "the columns with an index: rows with some of their values are found without reading the others, "
            "by `where` of a scan and by `wh.sql`. An index has a row for each row that is not NULL there. "
            'An item is a column, or `{"on": column, "include": columns}`: then the index has these columns, '
            "too, and answers statements about them alone without reading `events`",
            field="index_columns",
            flag="--index",
            help="a column by whose values rows are found without a scan, and the columns that the index has "
            "beside it: date=user,price; may be repeated",
            metavar="COLUMN[=COLUMNS]",
            at_load=True,
            is_told=False,
            is_altered=True,
            is_later=True,
        ),
        Option(
            "companions",
            "companions",
            "mergeable summaries of columns, by name: the name of a registered kind, and the column, such as "
            '{"users": ("hll", "user_id")}; `wh.companion` asks them',
            field="companion_names",
            is_told=False,
        ),
        Option(
            "time",
            "column",
            "the column of event times, a timestamp or a date; None: the tick of a row is a step number",
            flag="--time",
            help="the event time column, a timestamp or date",
            metavar="COLUMN",
            at_load=True,
        ),
        Option(
            "tick",
            "span",
            "the grain of windows",
            field="tick_us",
            property="tick_us",
            default="1 day",
            flag="--tick",
            help="the width of a tick, the unit of windows",
            metavar="SPAN",
            at_load=True,
        ),
        Option(
            "eps",
            "share",
            "an answer's rank error is at most eps * m, m being the live rows; in (0, 0.5)",
            default=0.001,
            flag="--eps",
            help="the error bound, in (0, 0.5)",
            at_load=True,
            is_altered=True,
        ),
        Option(
            "kappa",
            "number",
            "the merge threshold: the most runs that a level keeps; at least 2",
            default=10,
            least=2,
            flag="--kappa",
            help="how many runs a level may hold, at least 2",
            at_load=True,
            is_altered=True,
        ),
        Option(
            "grace",
            "grace",
            "how long files are kept after they leave a table, so that readers can finish",
            field="grace_us",
            property="grace_us",
            default="7 days",
            flag="--grace",
            help="how long old files are kept for readers",
            metavar="SPAN",
            is_altered=True,
        ),
        Option(
            "retention",
            "retention",
            "how long rows are kept, by their time: `expire` takes older ones out, and so does each nightly "
            "load; needs a time column",
            field="retention_us",
            property="retention_us",
            default="forever",
            flag="--retention",
            help="how long rows are kept by their time, such as '400 days'",
            metavar="SPAN",
            at_load=True,
            is_told=False,
            is_altered=True,
            is_later=True,
        ),
        Option(
            "key_eps",
            "share",
            "a live count of a key errs by at most key_eps * m with probability 1 - key_delta; at least 7e-6",
            default=0.01,
            flag="--key-eps",
            help="a live count of a key errs by at most E * m",
            metavar="E",
            is_told=False,
            is_altered=True,
        ),
        Option(
            "key_delta",
            "share",
            "the probability of a larger error than key_eps * m; at least 1e-12",
            default=0.01,
            flag="--key-delta",
            help="the probability that it errs by more",
            metavar="D",
            is_told=False,
        ),
        Option(
            "private",
            "private",
            "the columns of which only tokens are stored, never values; True: all columns of keys. It needs "
            "a secret (`use_secret`), which is kept outside of the warehouse",
            flag="--private",
            help="a column of which only tokens are stored; may be repeated. Needs a secret",
            metavar="COLUMN",
            is_told=False,
            is_later=True,
        ),
    )
}
# Those that `alter` sets; it adds and drops items of the others one by one.
SETTINGS = tuple(
    name for name, one in OPTIONS.items() if one.is_altered and one.kind not in ("names", "keys", "indexes")
)
