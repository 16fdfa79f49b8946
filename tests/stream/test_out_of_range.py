"""Times outside the years 1 to 9999: refused where they come in, and no trouble where they are in already."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.query.answers import single
from tests.stream.played import GOOD, SCHEMA, Crash, append, crash, create, load, row, values_in
from tests.warehouse.disk import rows_of, tables_of
from tidemark import query, warehouse
from tidemark.warehouse.columns.ticks import DAY_US, FIRST_US, LAST_US, from_epoch_us
from tidemark.warehouse.columns.value_encoding import Measure, epoch_micros
from tidemark.warehouse.ingest import row_filter
from tidemark.warehouse.ingest.row_filter import RowFilter, filter_rows, readable
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.ledger.ledger_rows import to_arrow
from tidemark.warehouse.settings.options import Options

FIRST, LAST = datetime(1, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
HOSTILE = [FIRST_US - 1, LAST_US + 1, -(2**63), 2**63 - 1, -(2**62) - 1, 10**18]
NAMES = ["t", "m", "k"]


@pytest.fixture
def uri(tmp_path: Path) -> Path:
    create(tmp_path / "w")
    return tmp_path / "w"


def test_the_bounds_are_those_of_python_and_of_nothing_else() -> None:
    assert (from_epoch_us(FIRST_US), from_epoch_us(LAST_US)) == (FIRST, LAST)
    for us in HOSTILE:
        assert from_epoch_us(us) == (FIRST if us < 0 else LAST)
    assert Measure("d", "date").bounds == (date.min.toordinal() - 719163, date.max.toordinal() - 719163)
    assert [Measure("d", "date").decode(day) for day in (-(2**31), 2**31 - 1)] == [date.min, date.max]
    days = np.array([-(2**31), -1, 2**31 - 1])
    assert epoch_micros(Measure("d", "date"), days).tolist() == [
        FIRST_US,
        -DAY_US,
        LAST_US // DAY_US * DAY_US,
    ]


def options(kind: str) -> Options:
    columns = (("t", kind), ("m", kind), ("k", kind))
    return Options(("m",), "t", DAY_US, 0.1, 10, 0, columns, own_keys=(("k",),))


times = st.one_of(st.none(), st.sampled_from([FIRST_US, LAST_US, *HOSTILE]), st.integers(-(2**63), 2**63 - 1))
days = st.one_of(
    st.none(), st.sampled_from([-719162, -719163, 2932896, 2932897]), st.integers(-(2**31), 2**31 - 1)
)


@given(st.sampled_from(["timestamp", "date"]), st.data(), st.one_of(st.none(), st.integers(0, LAST_US)))
def test_exactly_the_rows_outside_or_ahead_are_refused_with_a_reason(
    kind: str, data: Any, latest: int | None
) -> None:
    values = times if kind == "timestamp" else days
    arrow = pa.timestamp("us", "UTC") if kind == "timestamp" else pa.date32()
    width = 1 if kind == "timestamp" else DAY_US
    rows = data.draw(st.lists(st.tuples(values, values, values), max_size=12))
    plain = pa.int64() if kind == "timestamp" else pa.int32()
    columns = [pa.array([one[i] for one in rows], plain).cast(arrow) for i in range(3)]
    batch = pa.RecordBatch.from_arrays(columns, ["c0", "c1", "c2"])
    taken, count, refused = filter_rows(RowFilter(latest), options(kind), NAMES, batch)

    def is_good(one: Any) -> bool:
        inside = all(us is None or FIRST_US <= us * width <= LAST_US for us in one)
        return inside and (latest is None or one[0] is None or one[0] * width <= latest)

    kept = [tuple(column[i].value for column in taken.columns) for i in range(taken.num_rows)]
    assert kept == [one for one in rows if is_good(one)]
    assert count == len(refused) == len(rows) - len(kept)
    for one, told in zip([one for one in rows if not is_good(one)], refused, strict=True):
        outside = [
            name for name, us in zip(NAMES, one, strict=True) if us and not FIRST_US <= us * width <= LAST_US
        ]
        expected = (
            f"{outside[0]} lies outside the years 1 to 9999" if outside else "t lies too far in the future"
        )
        assert told["reason"].startswith(expected)
        assert list(json.loads(told["raw"])) == NAMES
    if refused:
        _, count, first = filter_rows(RowFilter(latest, all_or_nothing=True), options(kind), NAMES, batch)
        assert (count, first) == (len(refused), refused[:1])


def test_any_row_can_be_shown() -> None:
    """Values of which Python has none, text that is none, and these inside of others."""
    inner = pa.struct([("at", pa.timestamp("us")), ("text", pa.string())])
    bad = pa.array([b"a\xff"], pa.binary()).view(pa.string())
    at = pa.array([10**18], pa.timestamp("us"))
    nested = pa.StructArray.from_arrays([at, bad], ["at", "text"])
    lists = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), nested)
    maps = pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["k"]), at)
    assert lists.type == pa.list_(inner)
    shown = {"at": "33658-09-27T01:46:40.000000", "text": "a\\xff"}
    for array, expected in (
        (at, shown["at"]),
        (bad, shown["text"]),
        (nested, shown),
        (lists, [shown]),
        (maps, [{"key": "k", "value": shown["at"]}]),
        (pa.array([-(2**31)], pa.int32()).cast(pa.date32()), "-5877641-06-23"),
        (pa.array([Decimal("1.50")]), Decimal("1.50")),
        (pa.array([b"\xff"], pa.binary()), b"\xff"),
        (pa.nulls(1, inner), None),
    ):
        assert readable(array[0]) == expected
        json.dumps(readable(array[0]), default=str)


@pytest.mark.parametrize("column", ["at", "moment", "seen"])
def test_a_stream_rejects_such_rows_and_takes_the_others_of_the_batch(uri: Path, column: str) -> None:
    rows = [row(1), *[row(2, **{column: us}) for us in HOSTILE], row(3, **{column: FIRST_US})]
    rows += [row(4, **{column: LAST_US}), row(5, **{column: None})]
    assert append(uri, 0, rows)
    assert not append(uri, 0, rows)
    assert values_in(uri) == [1, 3, 4, 5]
    rejected = rows_of(uri, "rejected")
    assert set(rejected.column("reason").to_pylist()) == {f"{column} lies outside the years 1 to 9999"}
    shown = [json.loads(raw) for raw in rejected.column("raw").to_pylist()]
    assert [list(one) for one in shown] == [SCHEMA.names] * len(HOSTILE)
    assert shown[0][column] == "0000-12-31T23:59:59.999999"
    assert shown[1][column] == "10000-01-01T00:00:00.000000"
    wh = query.open(uri)
    assert wh.span(last="1 day") is not None
    load(uri)
    assert values_in(uri) == [1, 3, 4, 5]
    assert warehouse.verify(uri).ok


def as_before(patch: pytest.MonkeyPatch) -> None:
    """A writer that takes any time, as other tools do."""
    patch.setattr(row_filter, "_bounded", lambda _: [])


@pytest.fixture
def filled(uri: Path) -> Path:
    """Rows of all times in history and live."""
    with pytest.MonkeyPatch.context() as patch:
        as_before(patch)
        for number in range(2):
            for part, us in enumerate([GOOD, *HOSTILE]):
                append(
                    uri, number * 10 + part, [row(number * 10 + part, us, us, us), row(50, None, None, None)]
                )
            if not number:
                load(uri)
    return uri


def test_a_stream_that_such_a_row_stopped_goes_on(uri: Path) -> None:
    """Rows in `events`, no ledger row, and Spark brings the batch again."""
    rows = [row(1), *[row(i, us, us, us) for i, us in enumerate(HOSTILE, start=2)]]
    with pytest.MonkeyPatch.context() as patch:
        as_before(patch)
        patch.setattr(ledger_table, "append_batch", crash)
        with pytest.raises(Crash):
            append(uri, 0, rows)
    assert values_in(uri) == []
    assert append(uri, 0, rows)
    assert append(uri, 1, [row(20)])
    assert values_in(uri) == [*range(1, 2 + len(HOSTILE)), 20]
    assert warehouse.verify(uri).ok


def test_the_ledger_row_of_any_time_was_what_stopped_it(uri: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: datetimes in the ledger's rows, made after the commit of `events`."""

    def as_datetimes(one: Any, summaries: Any, key_fields: Any) -> Any:
        for summary in summaries:
            assert summary.times is None or FIRST_US <= summary.times[0] <= summary.times[1] <= LAST_US
        return to_arrow(one, summaries, key_fields)

    as_before(monkeypatch)
    monkeypatch.setattr(ledger_table, "to_arrow", as_datetimes)
    before = tables_of(uri)
    with pytest.raises(AssertionError):
        append(uri, 0, [row(1, HOSTILE[0])])
    assert tables_of(uri) == before  # now it would stop before the rows are committed


def questions(wh: query.Warehouse) -> Iterator[Callable[[], Any]]:
    """Everything that a reader can be asked."""
    windows: list[dict[str, Any]] = [{}, {"last": "1 day"}, {"last": "3 hours"}, {"last": "104000 days"}]
    windows += [{"between": edges} for edges in ((FIRST, LAST), (None, "2001-09-10"), ("9999-12-31", None))]
    for measure in ("value", "moment"):
        for window in windows:
            for mode in ("quick", "accurate", "exact"):
                ask = {"measure": measure, "mode": mode, **window}
                point = 5 if measure == "value" else LAST
                yield partial(wh.quantile, [0, 0.3, 0.5, 1], **ask)
                yield partial(wh.rank, [point], **ask)
                yield partial(wh.cdf, [point], **ask)
                yield partial(wh.histogram, 7, **ask)
            yield partial(wh.span, measure, **window)
    for window in windows:
        for mode in ("approximate", "exact"):
            asked = {"mode": mode, **window}
            yield partial(wh.frequency, [FIRST, LAST, from_epoch_us(GOOD)], **asked)
            yield partial(wh.top, 20, **asked)
            yield partial(wh.heavy_hitters, 0.01, **asked)
            yield partial(wh.key_range, FIRST, None, **asked)
            yield partial(wh.self_join, **asked)
    yield wh.info


def test_no_question_fails_where_such_rows_are(filled: Path) -> None:
    assert warehouse.verify(filled).ok, str(warehouse.verify(filled))
    wh = query.open(filled)
    for ask in questions(wh):
        try:
            answer = ask()
        except query.EmptyWindow:
            continue
        assert str(answer)
        if hasattr(answer, "to_json"):
            answer.to_json()
        if hasattr(answer, "to_arrow"):
            answer.to_arrow()
    warehouse.maintain(None, filled)
    load(filled)
    assert warehouse.verify(filled).ok


def test_such_rows_count_as_those_of_the_nearest_time_there_is(filled: Path) -> None:
    told = sorted([from_epoch_us(us) for us in (GOOD, *HOSTILE)] * 2)
    wh = query.open(filled)
    for phi, value in ((0, FIRST), (0.5, told[6]), (1, LAST)):
        assert wh.quantile(phi, "moment", mode="exact").value == value
    assert int(single(wh.rank(FIRST, "moment", mode="exact"))) == told.count(FIRST)
    assert int(single(wh.rank(LAST, "moment", mode="exact"))) == len(told)
    before = int(single(wh.rank(from_epoch_us(LAST_US - 1), "moment", mode="exact")))
    assert before == len(told) - told.count(LAST)
    assert sum(wh.histogram(5, "moment", mode="exact").counts) == len(told)
    assert values_in(filled) == sorted([*range(7), *range(10, 17), *[50] * 14])


def test_sql_and_figures_hold_where_such_rows_are(filled: Path) -> None:
    wh = query.open(filled)
    assert wh.sql('SELECT count(*), count("at") FROM events').fetchall() == [(28, 14)]
    for text in (
        "SELECT * FROM quantile([0, 0.5, 1], 'moment')",
        "SELECT * FROM quantile(0.5, 'value', '1 day')",
        "SELECT * FROM rank(TIMESTAMP '9999-12-31', 'moment')",
        "SELECT * FROM histogram(3, 'moment')",
        "SELECT * FROM cdf(measure := 'moment')",
        "SELECT * FROM top(20)",
        "SELECT * FROM summary",
        "SELECT count(*) FROM live",
    ):
        assert wh.sql(text).fetchall()
    figures: list[Callable[[], Any]] = [
        lambda: wh.plot.cdf("moment"),
        lambda: wh.plot.histogram(5, "moment"),
        lambda: wh.plot.cdf("value", last="1 day"),
        lambda: wh.plot.quantiles(every="104000 days", measure="moment"),
        lambda: wh.plot.quantiles(last="1 day"),
        wh.plot.top,
    ]
    for draw in figures:
        axes = draw()
        axes.figure.canvas.draw()
        plt.close("all")
