"""Queries on a warehouse: quantiles, ranks and frequencies with certified bounds, without a JVM.

Its calls:

    wh = query.open("path-or-uri")                  # no JVM; looks for newer data with each question
    wh = query.open("https://host/flights", {"token": token})       # behind `tidemark serve`
    wh = query.open({"eu": uri, "us": other})       # several warehouses, asked as one
    wh.quantile(0.99)                               # one Answer
    wh.quantile([0.5, 0.9], measure="delay", last="7d", mode="accurate")    # Answers: to_pandas, to_json ...
    wh.quantile(0.5, between=(t0, t1), mode="exact")
    wh.quantile(0.5, last="7d", as_of=t1)           # as_of: what last counts back from
    wh.quantile(0.99, where={"origin": "ATL"}); wh.rank(60, by="dest", top=20)    # declared groups: fast
    wh.quantile(0.99, where="dest LIKE 'S%' AND distance > 500")            # any other condition: a scan
    wh.quantile(0.99, every="1h", last="7d"); wh.frequency("ATL", every="1d")     # one answer a window
    wh.rank(120.0); wh.cdf([1, 10, 100]); wh.histogram(20)
    wh.summary("delay", by="origin", last="7d")     # count, sum, mean, min, max, variance: exact
    wh.largest(3, "delay", by="origin"); wh.smallest(3)
    wh.frequency("ATL", last="1h"); wh.heavy_hitters(0.01); wh.top(20); wh.key_range("A", "B")
    wh.top(10, where="delay > 60"); wh.distinct(by="dest", order="-value", top=5)    # of any rows: by a scan
    wh.hierarchy(0.01, "."); wh.hierarchy(0.05, key="day")  # prefixes of addresses, paths, dates
    wh.frequency(("ATL", "SEA"), key=["origin", "dest"])    # one of several keys
    wh.self_join(last="1d"); wh.inner_product(other)        # modes of keys: approximate (default), exact
    wh.distinct(last="30d", every="1d"); wh.new_keys(last="1d")    # how many keys; how many never seen before
    wh.overlap((t0, t1), (t1, t2))                  # keys of both windows, and of one alone
    wh.persistent(0.8, last="30d"); wh.persistent(1, slot="7d", most=100)   # keys of most days; rare, weekly
    wh.persistence("ATL")                           # the days of one key
    wh.companion("users", last="7d").summary        # a summary of your own kind
    wh.info(); wh.span(last="14d"); wh.tick         # runs, bytes, versions; the window's ticks; their width
    wh.plot.cdf(); wh.plot.quantiles(every="7d", by="origin", top=3); wh.plot.histogram(ax=axes)
    wh.plot.distinct(every="1d", new=True); wh.plot.persistence(["ATL"], slot="7d"); wh.plot.top(20)
    wh.sql("SELECT * FROM quantile(0.99)")          # DuckDB's relation over events, live, history, runs ...
    query.connect({"a": uri, "b": other}).sql("FROM a JOIN b USING (dest)")    # one statement over several
    query.register_duckdb(connection, uri, "flights")       # the same in a connection of the caller's
    query.register_views(spark, uri, name="flights")        # flights_quantile(...) and views, in Spark's SQL
    query.register_views(spark)                     # the warehouses of the settings spark.tidemark.NAME
    query.token("alice")                            # what stands for a value of a private column
    query.reveal(token)                             # the value, of a warehouse created with reveal=True
    query.alert("quantile(0.99, last='15m') > 500", wh=wh, notify=tell)    # asked after each commit
    query.alert(..., sites=3, exchange=query.Exchange(...)); query.alert_site(0, exchange=..., wh=wh)
    query.use("path-or-uri"); query.quantile(0.99)  # the module's warehouse; or TIDEMARK_WAREHOUSE

The questions are functions, too: `quantile`, `rank`, `frequency` and the others are the methods of the
warehouse that was opened with `use`, or else the one at the address in the environment variable
TIDEMARK_WAREHOUSE.

The rooms, from the lowest floor to the highest:

    answers           answers as values, and their forms: text, JSON, Arrow, HTML
    reading           blocks of runs, live rows in memory, windows
    keys, quantiles, scans
                      counts of keys; quantiles and ranks; exact scans of `events` by DuckDB. quantiles is
                      hard: rank_search.py decides what is read, combined_bounds.py has the proofs
    groups            slices of runs that are sorted by group
    asking            from the arguments of a question to its answers
    reader            the questions, with their parameters
    plots, sql        figures; functions and views of Spark's and DuckDB's SQL
    warehouse         the open warehouse: the questions, figures and SQL together
    integrations      warehouses as other tools expect a database
    alerts            conditions on answers, asked again and again, and what to tell when their state changes
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from tidemark.first_use import import_at_first_use
from tidemark.query.answers.companion_answer import CompanionAnswer
from tidemark.query.answers.distinct_answers import DistinctAnswer, KeyNumber, OverlapAnswer
from tidemark.query.answers.extreme_answer import Extreme
from tidemark.query.answers.info import Info
from tidemark.query.answers.key_answers import CountAnswer, FrequencyAnswer, HitterAnswer, PrefixAnswer
from tidemark.query.answers.measure_answers import Answer, Answers, Bin, CdfAnswer, Histogram, RankAnswer
from tidemark.query.answers.persistence_answers import PersistenceAnswer, PersistentAnswer
from tidemark.query.answers.summary_answer import Summary
from tidemark.query.warehouse import Warehouse
from tidemark.warehouse.columns.scalars import plain
from tidemark.warehouse.columns.ticks import parse_duration, parse_grace, width_us
from tidemark.warehouse.delta.disk_cache import DiskCache
from tidemark.warehouse.errors import (
    DamagedWarehouse,
    EmptyWindow,
    InputError,
    NotAWarehouse,
    TidemarkError,
    shortened,
)
from tidemark.warehouse.memory_cache import parse_bytes
from tidemark.warehouse.private.tokens import Token, reveal, token
from tidemark.warehouse.snapshots.past import At, opened
from tidemark.warehouse.snapshots.sites import AnySnapshot, Missing

if TYPE_CHECKING:
    from tidemark.query.alerts.alert import Alert, GroupState, Notice, Source
    from tidemark.query.alerts.at_site import AlertSite
    from tidemark.query.alerts.places import Exchange
    from tidemark.query.sql.duckdb_sql import register_duckdb
    from tidemark.query.sql.spark_sql import register_views
    from tidemark.query.sql.statements import Connection
    from tidemark.warehouse.snapshots.open_sites import Address, SitesAt
    from tidemark.warehouse.snapshots.same_batches import Duplicates

import_at_first_use(
    __name__,
    {
        "alerts.alert": "Alert GroupState Notice",
        "alerts.at_site": "AlertSite",
        "alerts.places": "Exchange",
        "sql.duckdb_sql": "register_duckdb",
        "sql.spark_sql": "register_views",
        "sql.statements": "Connection",
    },
)

P = ParamSpec("P")
T = TypeVar("T")

VARIABLE = "TIDEMARK_WAREHOUSE"
_used: dict[str, Warehouse] = {}  # the warehouse of `use` under "", others by the value of the variable


def open(  # noqa: A001, PLR0913
    uri: Address | Sequence[Address] | Mapping[str, Address],
    storage_options: dict[str, str] | Mapping[str, dict[str, str] | None] | None = None,
    *,
    memory: str | int | None = None,
    progress: Callable[[float], None] | None = None,
    max_staleness: str | timedelta | None = None,
    cache: str | os.PathLike[str] | None = None,
    cache_size: str | int = "4 GiB",
    at: SitesAt | None = None,
    duplicates: Duplicates = "warn",
    missing: Missing = "error",
) -> Warehouse:
    """Opens the warehouse at a path, at the address of an object store or of a server, or several as one.

    uri: a list of addresses, or a mapping of names to them, opens several warehouses: questions are then
        about the rows of all of them, with the same promises. The errors of their live sides add, and `last`
        counts back from the newest tick of all. Each warehouse is read as of one moment, but these moments
        may differ, so `as_of` and `by_site()` of an answer have the versions of each. Measures, keys and
        groups with their types, the time column and the tick must be equal.
    storage_options: options of the object store, as delta-rs defines them, or of the server: `token`,
        `certificate`, `timeout`; for several warehouses those of all, or those of each by its name.
    memory: the budget for decoded rows that are kept in memory: live rows, rows at the edges of groups, and
        whole runs where many groups or windows are asked at once.
        A number of bytes, or text such as "256MB" or "1 GiB". If the live rows do not fit, questions that
        need them read them each time. By default all readers of the process share a tenth of the machine's
        memory, at least 256 MiB; the live rows of each may take 256 MiB of it.

    progress: called with the share of a scan that is done, from 0 to 1. By default a long scan shows its
        progress on a terminal and in a notebook.
    max_staleness: for how long an answer may miss what was committed meanwhile, such as "2s". Within this
        time questions do not look for newer data; a look takes a round of requests on an object store. By
        default each question looks, and misses nothing that was committed before it was asked.

    cache, cache_size: a folder on this machine that keeps what was read of an object store, for this process
        and later ones, and how many bytes it may have. A local warehouse needs none.

    at: the warehouse as it was, history and live side, and never newer: after a step, by its number, or at a
        time, a datetime, a date (its midnight) or ISO text, a naive one in UTC. The view `steps` of `wh.sql`
        lists the steps. For several warehouses a time, or the `moment` of an answer: the same question then
        has the same answer. Files are kept for the grace: a moment is refused once what it needs may be
        deleted.

    duplicates: for several warehouses, when they are opened: batches that two of them have, of equal source,
        number, rows and contents, are named in a warning of the logger `tidemark.sites` ("warn"), or refused
        ("refuse").

    missing: for several warehouses, what a question does while the store of one does not answer: "error", or
        "bounds" for quantiles, ranks, shares, histograms, summaries, rows of keys, heavy hitters, top and
        numbers of distinct keys, of all rows of a window. Then what was read of this warehouse last widens
        the bounds, which hold for that moment, not for the present; `widened` of the answer says so, and
        `complete` is False. It is an error if nothing was read of it, and for all other questions.

    Raises NotAWarehouse if there is no warehouse, InputError for a malformed budget or duration, for a
    cache folder that cannot be made, for a moment that is not there any more, and for warehouses that cannot
    be asked together. With several, the error of one names it.
    """
    seconds = 0.0 if max_staleness is None else width_us(max_staleness) / 1e6
    budget = parse_bytes(plain(cache_size))
    kept = None if cache is None else DiskCache(cache, budget)
    snapshot: AnySnapshot
    if isinstance(uri, Sequence | Mapping) and not isinstance(uri, str | bytes):
        from tidemark.warehouse.snapshots.open_sites import opened_sites

        snapshot = opened_sites(uri, storage_options, kept, at=at, duplicates=duplicates, missing=missing)
    else:
        options = cast("dict[str, str] | None", storage_options)
        snapshot = opened(uri, options, kept, at=cast("At | None", at))
    own = None if memory is None else parse_bytes(plain(memory))
    return Warehouse(snapshot, own, progress, seconds)


def connect(
    warehouses: Mapping[str, Address | Warehouse],
    storage_options: Mapping[str, dict[str, str] | None] | None = None,
    **options: Any,
) -> Connection:
    """Several warehouses that one statement in SQL can name, such as to join their rows.

    >>> both = query.connect({"rankings": "a", "visits": "s3://lake/b"})              # doctest: +SKIP
    >>> both.sql("FROM rankings JOIN visits USING (url)").df()                        # doctest: +SKIP

    warehouses: a mapping of names, which are identifiers, to paths, addresses or open warehouses.
    storage_options: options of the object store of each that is not open yet, by its name.
    options: of `open`, for those that are not open yet.

    Raises InputError for names that are no identifiers or start with another one and `_`, and the errors of
    `open`.
    """
    from tidemark.query.sql.statements import Connection

    if not isinstance(warehouses, Mapping):
        raise InputError(
            f"connect takes a mapping of names to warehouses, got {shortened(warehouses)}. Write "
            "{'name': 'address'}."
        )
    given = storage_options or {}
    if unknown := given.keys() - warehouses.keys():
        raise InputError(f"storage options are for {sorted(unknown)}, which are no names of warehouses here.")
    return Connection(
        {
            name: wh if isinstance(wh, Warehouse) else open(wh, given.get(name), **options)
            for name, wh in warehouses.items()
        }
    )


def use(
    uri: str | os.PathLike[str],
    storage_options: dict[str, str] | None = None,
    *,
    memory: str | int | None = None,
    max_staleness: str | timedelta | None = None,
    at: At | None = None,
) -> Warehouse:
    """Opens a warehouse for the functions of this module, and returns it; parameters as `open`."""
    _used[""] = open(uri, storage_options, memory=memory, max_staleness=max_staleness, at=at)
    return _used[""]


def alert(  # noqa: PLR0913
    *when: str,
    wh: Warehouse | None = None,
    theta: float = 0.0,
    clear: Any = None,
    lag: str | timedelta = "0s",
    stale: str | timedelta | None = None,
    state: str | os.PathLike[str] | None = None,
    notify: Callable[[dict[str, Any]], None] | None = None,
    sites: int | None = None,
    exchange: Exchange | None = None,
    silent: str | timedelta = "1m",
) -> Alert:
    """Conditions that are asked again and again: `check()` asks once, `watch()` after each commit.

    >>> with query.alert("quantile(0.99, last='15m') > 500", notify=tell) as alert:    # doctest: +SKIP
    ...     for notice in alert.watch(every=15):
    ...         print(notice)

    when: conditions, each a comparison of an answer with a number, or several with `and` between them:
        quantile, rank, cdf, frequency, distinct, self_join; count, sum, mean, min, max, stddev of a measure;
        burn(x, objective): the share of rows above x, divided by the allowed share, 1 - objective. Arguments
        are those of the method, as in SQL: ``quantile(0.99, 'delay', last='15m', by='origin') > 500``. A rank
        that is compared with a number between 0 and 1 is a share of the rows. Two arguments are the alert's:
        with ``least_rows=20``, a group with fewer rows is clear; with ``for='5m'``, the state changes from
        clear only after the condition has held for five minutes.
    wh: the warehouse, or several that are open as one; by default that of `use`.
    theta: a group that was beyond a threshold t becomes clear only at a distance of theta * abs(t) from t, on
        the other side.
    clear: instead of theta, the level at which a group becomes clear, for conditions of one comparison.
    lag: windows of `last` end this long before the clock of this machine, for rows that come late.
    stale: the state is stale if the newest row of a warehouse is older than this; by default the longest
        `last` of the condition. Without either, and without a time column, no row is too old.
    state: a file that keeps the states and what was not delivered; by default they end with this object.
    notify: called with each change, a mapping of JSON values; it is called again, with the same `id`, if it
        raises an exception, and after a crash. Receivers leave out an `id` that they know.

    sites, exchange: instead of `wh`, the warehouses of so many sites, each with an `alert_site` beside it.
        They report only when a sum over all sites may have crossed its threshold. Conditions are about
        quantiles, rank, cdf, burn, frequency and count, also `by` groups, whose values are then those of
        JSON; a measure is given as `measure=`. The value of a quantile is not known, only on which side of
        the threshold it is; `reason` has the numbers of rows. Until all sites have told, a state stays.
    silent: the state is stale if a site has said nothing for so long. It says something three times as often.

    The states of a group: clear, possible (a part of its certain interval is beyond the threshold), certain
    (all of it is), and stale (nothing can be said about now). A question is asked in the cheapest mode first,
    and in the next mode if the interval of a group does not decide; the last mode is exact.

    Raises InputError for a condition that does not parse or cannot be asked, and for a state file that is
    none or that another process uses.
    """
    from tidemark.query.alerts.alert import Alert
    from tidemark.query.alerts.levels import conditions_of

    limit = None if stale is None else parse_duration(stale)
    source: Source
    if sites is not None:
        from tidemark.query.alerts.over_sites import OverSites

        if exchange is None or wh is not None:
            raise InputError("an alert over sites needs an exchange, and has no warehouse of its own.")
        conditions = conditions_of(when, theta, clear)
        source = OverSites(
            conditions.values(),
            sites,
            exchange,
            theta=theta,
            clear=clear,
            lag=parse_grace(lag),
            stale=limit,
            silent=parse_duration(silent),
        )
        return Alert(source, conditions, state, notify)
    from tidemark.query.alerts.of_warehouse import OfWarehouse

    asked = _current() if wh is None else wh
    names = asked.options.measure_names if asked.options.columns else ()
    conditions = conditions_of(when, theta, clear, names)
    source = OfWarehouse(asked, conditions.values(), parse_grace(lag), limit)
    return Alert(source, conditions, state, notify)


def alert_site(
    site: int, *, exchange: Exchange, wh: Warehouse | None = None, every: float = 15.0
) -> AlertSite:
    """The warehouse of a site of an alert over sites: `watch()` looks at it, and reports what `alert` needs.

    site: its number, from 0 on. exchange: the same as that of the alert, which has the conditions.
    wh: the warehouse, or several that are open as one; by default that of `use`.
    every: it looks after each commit, and at least every so many seconds.

    Raises InputError for an exchange that cannot be used. A later process of the same site ends this one.
    """
    from tidemark.query.alerts.at_site import AlertSite

    return AlertSite(_current() if wh is None else wh, site, exchange, every)


def _asked(method: Callable[Concatenate[Warehouse, P], T]) -> Callable[P, T]:
    """A method of the warehouse that was chosen, as a function."""

    @wraps(method)
    def ask(*args: P.args, **kwargs: P.kwargs) -> T:
        found: T = getattr(_current(), method.__name__)(*args, **kwargs)
        return found

    own = inspect.signature(method)
    shown = own.replace(parameters=[*own.parameters.values()][1:])
    ask.__signature__ = shown  # type: ignore[attr-defined]  # without `self`
    return ask


quantile = _asked(Warehouse.quantile)
rank = _asked(Warehouse.rank)
cdf = _asked(Warehouse.cdf)
histogram = _asked(Warehouse.histogram)
largest = _asked(Warehouse.largest)
smallest = _asked(Warehouse.smallest)
summary = _asked(Warehouse.summary)
frequency = _asked(Warehouse.frequency)
heavy_hitters = _asked(Warehouse.heavy_hitters)
hierarchy = _asked(Warehouse.hierarchy)
top = _asked(Warehouse.top)
key_range = _asked(Warehouse.key_range)
self_join = _asked(Warehouse.self_join)
distinct = _asked(Warehouse.distinct)
new_keys = _asked(Warehouse.new_keys)
overlap = _asked(Warehouse.overlap)
companion = _asked(Warehouse.companion)
persistent = _asked(Warehouse.persistent)
persistence = _asked(Warehouse.persistence)
info = _asked(Warehouse.info)


def _current() -> Warehouse:
    """The warehouse of `use`, or that of the environment variable; InputError without either."""
    if "" in _used:
        return _used[""]
    uri = os.environ.get(VARIABLE)
    if not uri:
        raise InputError(
            f"no warehouse was chosen. Call query.use(path) first, or set the variable {VARIABLE}."
        )
    if uri not in _used:
        _used[uri] = open(uri)
    return _used[uri]


__all__ = [
    "Alert",
    "AlertSite",
    "Answer",
    "Answers",
    "Bin",
    "CdfAnswer",
    "CompanionAnswer",
    "Connection",
    "CountAnswer",
    "DamagedWarehouse",
    "DistinctAnswer",
    "EmptyWindow",
    "Exchange",
    "Extreme",
    "FrequencyAnswer",
    "GroupState",
    "Histogram",
    "HitterAnswer",
    "Info",
    "InputError",
    "KeyNumber",
    "NotAWarehouse",
    "Notice",
    "OverlapAnswer",
    "PersistenceAnswer",
    "PersistentAnswer",
    "PrefixAnswer",
    "RankAnswer",
    "Summary",
    "TidemarkError",
    "Token",
    "Warehouse",
    "alert",
    "alert_site",
    "cdf",
    "companion",
    "connect",
    "distinct",
    "frequency",
    "heavy_hitters",
    "hierarchy",
    "histogram",
    "info",
    "key_range",
    "largest",
    "new_keys",
    "open",
    "overlap",
    "persistence",
    "persistent",
    "quantile",
    "rank",
    "register_duckdb",
    "register_views",
    "reveal",
    "self_join",
    "smallest",
    "summary",
    "token",
    "top",
    "use",
]
