"""Questions of public benchmarks against their definitions, which DuckDB answers, on data of their shape.

    h2o group-by q6, q8   duckdblabs/db-benchmark: median, standard deviation and the two largest by group
    ClickBench            ClickHouse/ClickBench: distinct users and top phrases, with a condition
    JSONBench q1 to q3    ClickHouse/JSONBench: events by kind, users of them, by hour of the day
    Nexmark q5 and q16    nexmark/nexmark: hot items in hopping windows; a report by channel and day
    RTABench q0           timescale/rtabench: events of terminals by hour, and their moving average
    TSBS double-groupby   timescale/tsbs: by host and hour, with p99 in the place of the mean

The last part of the rows is live.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from tidemark import query, stream, warehouse

START = np.datetime64("2024-01-01T00:00:00", "us")
ROWS = 3_000


class Asked:
    """A warehouse of a table, and DuckDB with the same table."""

    def __init__(self, folder: Path, name: str, rows: pa.Table, measure: str, **options: Any) -> None:
        uri = folder / name
        warehouse.create(None, uri, measure, schema=rows.schema, eps=0.01, **options)
        cut = len(rows) * 2 // 3
        warehouse.load(None, uri, rows.slice(0, cut), "old")
        stream.append(None, uri, rows.slice(cut), source="new", batch=0)
        self.wh, self._rows, self._name = query.open(uri), rows, name

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.register(self._name, self._rows)
            return connection.execute(statement).fetchall()


def times(rng: np.random.Generator, seconds: float) -> pa.Array:
    offsets = (rng.random(ROWS) * seconds * 1e6).astype("timedelta64[us]")
    return pa.array(START + offsets, pa.timestamp("us", "UTC"))


def zipf(rng: np.random.Generator, most: int) -> Any:
    return np.minimum(rng.zipf(1.3, ROWS), most)


def by_group(answers: Any, *columns: str) -> dict[tuple[Any, ...], Any]:
    return {tuple(one.group[column] for column in columns): one for one in answers}


def utc(window: tuple[Any, Any] | None) -> tuple[Any, Any]:
    assert window is not None
    return window


def test_h2o_q6_median_and_standard_deviation_of_each_group(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    ids = {f"id{i}": pa.array(rng.integers(1, 12, ROWS), pa.int32()) for i in (4, 5)}
    x = Asked(tmp_path, "x", pa.table({**ids, "v3": rng.random(ROWS) * 100}), "v3", groups=[["id4", "id5"]])
    by = ["id4", "id5"]
    # The median of an even number of rows lies between two: those of 1/2 and of a little more than that.
    middles = x.wh.quantile([0.5, 0.5 + 1e-6], "v3", by=by)
    median = {
        (low.group["id4"], low.group["id5"]): (low.value + high.value) / 2
        for low, high in zip(middles[::2], middles[1::2], strict=True)
        if low.group is not None
    }
    deviation = {group: one.stddev for group, one in by_group(x.wh.summary("v3", by=by), *by).items()}
    true = x.sql("SELECT id4, id5, median(v3), stddev(v3) FROM x GROUP BY id4, id5")
    assert len(true) == len(median) == len(deviation) == 11 * 11
    for id4, id5, middle, spread in true:
        assert median[id4, id5] == pytest.approx(middle, rel=1e-12)
        assert deviation[id4, id5] == pytest.approx(spread, rel=1e-9)


def test_h2o_q8_the_two_largest_of_each_group(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    values = [None if i % 9 == 0 else float(i * 37 % 1009) for i in range(ROWS)]
    rows = pa.table({"id6": pa.array(rng.integers(1, 40, ROWS), pa.int32()), "v3": values})
    x = Asked(tmp_path, "x", rows, "v3", groups=["id6"])
    found = x.wh.largest(2, "v3", by="id6")
    assert sorted((one.group["id6"], one.value) for one in found if one.group) == sorted(
        x.sql(
            """
            SELECT id6, v3 FROM (
                SELECT id6, v3, row_number() OVER (PARTITION BY id6 ORDER BY v3 DESC) AS order_v3
                FROM x WHERE v3 IS NOT NULL
            ) WHERE order_v3 <= 2
            """
        )
    )


@pytest.fixture(scope="module")
def hits(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    rng = np.random.default_rng(2)
    phrases = [f"phrase {i}" if i % 3 else "" for i in zipf(rng, 300)]
    rows = {
        "EventTime": times(rng, 3 * 86_400),
        "RegionID": pa.array(zipf(rng, 40), pa.int32()),
        "UserID": pa.array(zipf(rng, 900), pa.int64()),
        "SearchPhrase": pa.array(phrases),
        "MobilePhoneModel": pa.array([f"model {i % 9}" if i % 2 else "" for i in zipf(rng, 50)]),
        "ResolutionWidth": pa.array(rng.integers(0, 2000, ROWS), pa.int16()),
    }
    folder = tmp_path_factory.mktemp("clickbench")
    keys: list[Any] = ["UserID", "SearchPhrase", ["UserID", "SearchPhrase"]]
    return Asked(folder, "hits", pa.table(rows), "ResolutionWidth", keys=keys, time="EventTime")


def test_clickbench_numbers_of_distinct_users(hits: Asked) -> None:
    wh = hits.wh
    assert [(wh.distinct(key="UserID", mode="exact").count,)] == hits.sql(
        "SELECT COUNT(DISTINCT UserID) FROM hits"
    )
    for column, where in (
        ("RegionID", None),
        ("MobilePhoneModel", "MobilePhoneModel <> ''"),
        ("SearchPhrase", "SearchPhrase <> ''"),
    ):
        found = wh.distinct(key="UserID", by=column, where=where, order="-value", top=10)
        groups = [(one.group[column], one.count) for one in found if one.group]
        true = hits.sql(
            f"SELECT {column}, COUNT(DISTINCT UserID) AS u FROM hits WHERE {where or 'true'} "
            f"GROUP BY {column} ORDER BY u DESC, {column} LIMIT 10"
        )
        assert groups == true
        assert all(one.rows_scanned == ROWS for one in found)


def test_clickbench_most_frequent_phrases_and_users(hits: Asked) -> None:
    top = hits.wh.top(10, key="SearchPhrase", where="SearchPhrase <> ''")
    assert [(one.value, one.count) for one in top] == hits.sql(
        "SELECT SearchPhrase, COUNT(*) AS c FROM hits WHERE SearchPhrase <> '' "
        "GROUP BY SearchPhrase ORDER BY c DESC, SearchPhrase LIMIT 10"
    )
    users = hits.wh.top(10, key="UserID")
    assert [one.count for one in users] == [
        count
        for _, count in hits.sql(
            "SELECT UserID, COUNT(*) AS c FROM hits GROUP BY UserID ORDER BY c DESC LIMIT 10"
        )
    ]
    pairs = hits.wh.top(10, key=["UserID", "SearchPhrase"], where="ResolutionWidth > 100")
    assert [(*one.value, one.count) for one in pairs] == hits.sql(
        "SELECT UserID, SearchPhrase, COUNT(*) AS c FROM hits WHERE ResolutionWidth > 100 "
        "GROUP BY ALL ORDER BY c DESC, UserID, SearchPhrase LIMIT 10"
    )


@pytest.fixture(scope="module")
def bluesky(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    rng = np.random.default_rng(3)
    events = [f"app.bsky.{name}" for name in ("feed.post", "feed.like", "feed.repost", "graph.follow")]
    rows = {
        "time": times(rng, 2 * 86_400),
        "event": pa.array([events[i % 4] if i % 11 else None for i in zipf(rng, 99)]),
        "kind": pa.array(rng.choice(["commit", "identity"], ROWS, p=[0.9, 0.1])),
        "operation": pa.array(rng.choice(["create", "delete"], ROWS)),
        "did": pa.array([f"did:plc:{i}" for i in zipf(rng, 500)]),
        "bytes": rng.random(ROWS),
    }
    folder = tmp_path_factory.mktemp("jsonbench")
    return Asked(folder, "bluesky", pa.table(rows), "bytes", keys=["event", "did"], time="time")


COMMITS = "kind = 'commit' AND operation = 'create'"


def test_jsonbench_q1_and_q2_events_and_their_users(bluesky: Asked) -> None:
    wh = bluesky.wh
    top = wh.top(100, key="event")
    assert [(one.value, one.count) for one in top] == bluesky.sql(
        "SELECT event, count(*) AS c FROM bluesky WHERE event IS NOT NULL GROUP BY event ORDER BY c DESC"
    )
    counts = {one.value: one.count for one in wh.top(100, key="event", where=COMMITS)}
    users = {
        event: one.count
        for (event,), one in by_group(wh.distinct(key="did", by="event", where=COMMITS), "event").items()
    }
    true = bluesky.sql(
        f"SELECT event, count(*), count(DISTINCT did) FROM bluesky WHERE {COMMITS} AND event IS NOT NULL "
        "GROUP BY event"
    )
    assert {(event, counts[event], users[event]) for event in counts} == set(true)


def test_jsonbench_q3_when_people_use_it(bluesky: Asked) -> None:
    events = ["app.bsky.feed.post", "app.bsky.feed.repost", "app.bsky.feed.like"]
    where = f"{COMMITS} AND event IN ({', '.join(map(repr, events))})"
    found = bluesky.wh.top(100, key="event", by="hour(time)", where=where)
    assert {(one.value, one.group["hour(time)"], one.count) for one in found if one.group} == set(
        bluesky.sql(f"SELECT event, hour(time), count(*) FROM bluesky WHERE {where} GROUP BY ALL")
    )


@pytest.fixture(scope="module")
def bid(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    rng = np.random.default_rng(4)
    rows = {
        "dateTime": times(rng, 90),
        "auction": pa.array(zipf(rng, 60), pa.int64()),
        "bidder": pa.array(zipf(rng, 200), pa.int64()),
        "channel": pa.array(rng.choice(["Apple", "Baidu", "Google"], ROWS)),
        "price": pa.array((10 ** (rng.random(ROWS) * 4 + 3)).astype(np.int64), pa.int64()),
    }
    folder = tmp_path_factory.mktemp("nexmark")
    keys = ["auction", "bidder", "channel"]
    return Asked(folder, "bid", pa.table(rows), "price", keys=keys, time="dateTime", tick="1s")


def test_nexmark_q5_hot_items_in_hopping_windows(bid: Asked) -> None:
    """All auctions with the most bids of a window: `top` has them, as many as may be equal."""
    hot: dict[Any, list[tuple[Any, int]]] = {}
    for one in bid.wh.top(60, key="auction", every="2s", width="10s"):
        hot.setdefault(utc(one.window), []).append((one.value, one.count))
    found = {(*window, *item) for window, items in hot.items() for item in items if item[1] == items[0][1]}
    true = bid.sql(
        """
        WITH hops AS (
            SELECT auction, to_timestamp(start) AS starttime, to_timestamp(start + 10) AS endtime
            FROM bid, range(0, 10, 2) AS hop(back),
                LATERAL (SELECT floor(epoch(dateTime) / 2)::BIGINT * 2 - back AS start)
        ), counted AS (SELECT auction, starttime, endtime, count(*) AS num FROM hops GROUP BY ALL)
        SELECT starttime, endtime, auction, num FROM counted
        QUALIFY num = max(num) OVER (PARTITION BY starttime)
        """
    )
    assert found == {(start.astimezone(UTC), end.astimezone(UTC), *rest) for start, end, *rest in true}


def test_nexmark_q16_statistics_of_channels(bid: Asked) -> None:
    ranks: Sequence[str | None] = (
        None,
        "price < 10000",
        "price >= 10000 AND price < 1000000",
        "price >= 1000000",
    )
    found: dict[str, list[int]] = {}
    for where in ranks:
        numbers = [
            {one.value: one.count for one in bid.wh.top(10, key="channel", where=where)},
            *(
                {
                    channel: one.count
                    for (channel,), one in by_group(
                        bid.wh.distinct(key=key, by="channel", where=where, every="1d"), "channel"
                    ).items()
                }
                for key in ("bidder", "auction")
            ),
        ]
        for channel in ("Apple", "Baidu", "Google"):
            found.setdefault(channel, []).extend(number[channel] for number in numbers)
    filters = [f"FILTER ({where})" if where else "" for where in ranks]
    columns = ", ".join(
        f"count(*) {one}, count(DISTINCT bidder) {one}, count(DISTINCT auction) {one}" for one in filters
    )
    true = bid.sql(f"SELECT channel, {columns} FROM bid GROUP BY channel, date_trunc('day', dateTime)")
    assert found == {channel: list(rest) for channel, *rest in true}


def test_rtabench_q0_events_of_terminals_by_hour(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    rows = {
        "event_created": times(rng, 2 * 86_400),
        "event_type": pa.array(rng.choice(["Created", "Departed", "Delivered", "Lost"], ROWS)),
        "terminal": pa.array(rng.choice(["Berlin", "Hamburg", "Munich", "London"], ROWS)),
        "satisfaction": rng.random(ROWS),
    }
    asked = Asked(
        tmp_path,
        "order_events",
        pa.table(rows),
        "satisfaction",
        time="event_created",
        tick="1h",
        key="terminal",
    )
    terminals = ["Berlin", "Hamburg", "Munich"]
    counts = asked.wh.frequency(
        terminals,
        where="event_type IN ('Created', 'Departed', 'Delivered')",
        between=(datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 2, 1, tzinfo=UTC)),
        every="1h",
    )
    hours: dict[str, list[tuple[Any, int]]] = {}
    for one in counts:
        if one.count:
            hours.setdefault(one.value, []).append((utc(one.window)[0], one.count))
    found = []
    for terminal, own in hours.items():
        for i, (hour, count) in enumerate(own):
            last = [rows for _, rows in own[max(0, i - 3) : i + 1]]
            found.append((hour, terminal, count, sum(last) / len(last)))
    true = asked.sql(
        """
        WITH hourly_stats AS (
            SELECT date_trunc('hour', event_created) AS hour, terminal, count(*) AS event_count
            FROM order_events
            WHERE event_created >= '2024-01-01' AND event_created < '2024-02-01'
                AND event_type IN ('Created', 'Departed', 'Delivered')
            GROUP BY hour, terminal
        )
        SELECT hour, terminal, event_count, avg(event_count) OVER (
            PARTITION BY terminal ORDER BY hour ROWS BETWEEN 3 PRECEDING AND CURRENT ROW)
        FROM hourly_stats WHERE terminal IN ('Berlin', 'Hamburg', 'Munich') ORDER BY terminal, hour
        """
    )
    assert found == [(hour.astimezone(UTC), *rest) for hour, *rest in true]


@pytest.mark.parametrize("groups", [["hostname"], None], ids=["declared", "scanned"])
def test_tsbs_double_groupby_p99_by_host_and_hour(tmp_path: Path, groups: list[str] | None) -> None:
    rng = np.random.default_rng(6)
    rows = {
        "time": times(rng, 86_400),
        "hostname": pa.array([f"host_{i}" for i in rng.integers(0, 8, ROWS)]),
        "usage_user": rng.integers(0, 101, ROWS),
    }
    cpu = Asked(tmp_path, "cpu", pa.table(rows), "usage_user", time="time", tick="1h", groups=groups)
    start, end = "2024-01-01 03:00", "2024-01-01 15:00"
    found = cpu.wh.quantile(0.99, by="hostname", every="1h", between=(start, end))
    true = cpu.sql(
        "SELECT hostname, date_trunc('hour', time), quantile_disc(usage_user, 0.99) FROM cpu "
        f"WHERE time >= '{start}' AND time < '{end}' GROUP BY ALL"
    )
    assert {
        (one.group["hostname"], utc(one.window)[0], one.value) for one in found if one.group and one.N
    } == {(host, hour.astimezone(UTC), value) for host, hour, value in true}
