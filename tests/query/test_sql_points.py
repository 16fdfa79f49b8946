"""SQL's points and edges are those of Python: the same counts beside the same values, or the same refusal."""

from __future__ import annotations

import inspect
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.query.in_duckdb import in_python, in_sql
from tidemark import query, warehouse
from tidemark.query.sql import duckdb_calls, pinned_readers, sql_rows
from tidemark.query.sql.duckdb_types import Kind, parse_kind
from tidemark.query.sql.shown_types import point_type
from tidemark.warehouse.errors import InputError

NAN, INF = math.nan, math.inf
NOON = datetime(2001, 1, 1, 12, tzinfo=UTC)
COLUMNS = {
    "whole": pa.array([-3, -2, -1, 0, 1, 2, 3, 4]),
    "small": pa.array([1, 2, 3, 9], pa.int16()),
    "huge": pa.array([-(2**60) - 1, 2**53 + 1, 2**60 + 3]),
    "price": pa.array([Decimal("0.10"), Decimal("0.11"), Decimal("0.30")], pa.decimal128(6, 2)),
    "part": pa.array([0.1, 0.5, 2.0**53, -INF, NAN]),
    "single": pa.array([0.1, 0.3, 7.0], pa.float32()),
    "day": pa.array([date(2001, 1, 1), date(2001, 1, 2), date(2001, 1, 4)]),
    "at": pa.array([NOON, datetime(2001, 1, 2, 7, 0, 0, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
}
TIMES = ("day", "at")
# The text in DuckDB's SQL, and the same value in Python.
NUMBERS = {
    "0": 0,
    "2.5": Decimal("2.5"),
    "-2.5": Decimal("-2.5"),
    "0.105": Decimal("0.105"),
    "0.1": Decimal("0.1"),
    "0.1::DOUBLE": 0.1,
    "0.1::FLOAT": 0.10000000149011612,
    "1e30": 1e30,
    "'Infinity'::DOUBLE": INF,
    "'-Infinity'::FLOAT": -INF,
    "'NaN'::DOUBLE": NAN,
    "9007199254740993": 2**53 + 1,
    "18446744073709551615::UBIGINT": 2**64 - 1,
    "170141183460469231731687303715884105727": 2**127 - 1,
    "99999999999999999999.5::DECIMAL(38,2)": Decimal("99999999999999999999.50"),
    "5e-324": 5e-324,
    "true": True,
    "'many'": "many",
}
MOMENTS = {
    "DATE '2001-01-02'": date(2001, 1, 2),
    "TIMESTAMP '2001-01-01 12:00:00'": NOON,
    "TIMESTAMPTZ '2001-01-01 17:45:00+05:45'": NOON,
    "TIMESTAMPTZ '2001-01-02 07:00:00.000001+00'": datetime(2001, 1, 2, 7, 0, 0, 1, tzinfo=UTC),
    "TIMESTAMP_NS '2001-01-02 07:00:00.000000999'": "2001-01-02 07:00:00.000000999",
    "'2001-01-01 12:00'": "2001-01-01 12:00",
    "'2001-01-02'": "2001-01-02",
    "'tomorrow'": "tomorrow",
}


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, query.Warehouse]:
    """A warehouse for each column: where there are several measures, their common type is shown."""
    folder = tmp_path_factory.mktemp("points")
    return {name: made(folder / name, pa.table({name: column})) for name, column in COLUMNS.items()}


def made(uri: Path, table: pa.Table, **options: Any) -> query.Warehouse:
    warehouse.create(
        None, uri, options.pop("measures", table.column_names[:1]), schema=table.schema, **options
    )
    warehouse.load(None, uri, table, "a")
    return query.open(uri)


def as_double(name: str, point: Any) -> Any:
    """SQL's literal 0.1 is a decimal, and for a column of doubles it stands for the double."""
    return float(point) if name in {"part", "single"} and isinstance(point, Decimal) else point


def is_same(name: str, sql: Any, python: Any) -> bool:
    if name in TIMES and python is not None:
        return instant(sql) == instant(python)
    if isinstance(python, float) and not math.isfinite(python):
        return isinstance(sql, float) and repr(sql) == repr(python)
    return Fraction(sql) == Fraction(python)


def instant(value: Any) -> datetime:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    zone = getattr(value, "tzinfo", None) or UTC
    time = value.time() if isinstance(value, datetime) else datetime.min.time()
    return datetime.combine(value, time, zone)


def check_points(worlds: dict[str, query.Warehouse]) -> int:
    """Each point for each column; the number of those that were answered."""
    answered = 0
    for name, wh in worlds.items():
        for text, given in (NUMBERS | MOMENTS).items():
            point = as_double(name, given)
            found = in_sql(wh, f"SELECT value, rank, rank_lo, rank_hi FROM rank({text}, mode := 'exact')")
            expected = in_python(partial(wh.rank, point, mode="exact"))
            if isinstance(expected, str):
                assert found == expected, (name, text)
                continue
            assert isinstance(found, list), (name, text, found)
            ((value, *counts),) = found
            assert counts == [expected.rank, expected.rank_lo, expected.rank_hi], (name, text)
            assert is_same(name, value, expected.value), (name, text, value)
            answered += 1
    return answered


def test_a_point_is_the_one_that_was_used_or_refused_as_in_python(worlds: dict[str, query.Warehouse]) -> None:
    assert check_points(worlds) > 70


def test_points_in_the_type_of_the_measure_are_the_broken_variant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_rows, "point_type", lambda own, _given, **_: own)
    for name in ("whole", "day"):
        with pytest.raises((AssertionError, ValueError)):
            check_points({name: made(tmp_path / name, pa.table({name: COLUMNS[name]}))})


def check_keys(folder: Path) -> int:
    """Each value as a key of whole numbers, days and times; the number of those that were answered."""
    answered = 0
    for name in ("whole", "small", "day", "at"):
        rows = COLUMNS[name]
        table = pa.table({"x": [0.5] * len(rows), "k": rows, "t": [NOON] * len(rows)})
        wh = made(folder / name, table, key="k", time="t", tick="1h")
        for text, given in (NUMBERS | MOMENTS).items():
            if isinstance(given, str):
                continue  # Python takes no text for such keys
            for question, count, ask in (
                (f"frequency({text})", "count", partial(wh.frequency, given)),
                (f"persistence({text}, slot := '1d')", "slots", partial(wh.persistence, given, slot="1d")),
            ):
                found = in_sql(wh, f"SELECT value, {count} FROM {question}")
                expected = in_python(ask)
                if isinstance(expected, str):
                    assert found == expected, (name, text)
                    continue
                assert isinstance(found, list), (name, text, found)
                assert found[0][1] == getattr(expected, count) == (given in rows.to_pylist()), (name, text)
                assert found[0][0] is not None, (name, text)
                assert is_same(name, found[0][0], expected.value), (name, text, found)
                answered += 1
    return answered


def test_a_key_that_no_row_can_have_is_shown_as_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check_keys(tmp_path / "whole") > 60
    monkeypatch.setattr(sql_rows, "asked_key_type", lambda own, _given: own)  # the broken variant
    with pytest.raises((AssertionError, ValueError)):
        check_keys(tmp_path / "broken")


def check_points_of_several_measures(wh: query.Warehouse) -> None:
    for text in ("9007199254740993.0", "9007199254740993.5", "9007199254740992.9::DECIMAL(38, 19)", "0.5"):
        point = Decimal(text.partition("::")[0])
        ((value, rank),) = wh.sql(f"SELECT value, rank FROM rank({text}, 'whole')").fetchall()
        assert (value, rank) == (point, sum(row <= point for row in (2**53, 2**53 + 1))), text
        ((left,),) = wh.sql(f"SELECT \"left\" FROM histogram([{text}, 1e17::BIGINT], 'whole')").fetchall()
        assert left == point, text


def test_a_point_is_shown_whole_beside_measures_of_other_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {"x": pa.array([0.5, 0.1]), "whole": pa.array([2**53, 2**53 + 1])}
    wh = made(tmp_path / "w", pa.table(columns), measures=["x", "whole"])
    check_points_of_several_measures(wh)
    ((value, rank),) = wh.sql("SELECT value, rank FROM rank(0.1, 'x')").fetchall()
    assert (value, rank) == (0.1, 1)
    monkeypatch.setattr(sql_rows, "point_type", lambda own, given, **_: point_type(own, given))
    with pytest.raises(AssertionError):  # as if each of the measures were a double
        check_points_of_several_measures(wh)


EDGES = {
    "whole": ["5", "3", "[0, 2.5, 4]", "[-1e30, 0, 1e30]", "[0, 1.5]", "[3, 1]"],
    "small": ["4", "[1, 2.25, 9]"],
    "huge": ["5", "3", "[0, 9007199254740993, 1152921504606846979]"],
    "price": ["3", "[0.1, 0.105, 0.11]"],
    "part": ["[0.1, 0.5]", "2"],
    "single": ["7", "[0.1, 0.3, 7]"],
    "day": ["3", "[DATE '2001-01-01', TIMESTAMP '2001-01-02 12:00:00']"],
    "at": ["2", "[TIMESTAMPTZ '2001-01-01 12:00:00+00', TIMESTAMPTZ '2001-01-03 01:00:00+00']"],
}


def check_bins(worlds: dict[str, query.Warehouse]) -> None:
    """The rows between the edges that are shown are the rows that are counted."""
    for name, wh in worlds.items():
        for bins in EDGES[name]:
            text = f'SELECT "left", "right", count, lo, hi FROM histogram({bins}, mode := \'exact\')'
            found = in_sql(wh, text)
            if isinstance(found, str):
                assert "UDF" not in found, found
                continue
            for place, (left, right, count, lo, hi) in enumerate(found):
                rows = [value for value in COLUMNS[name].to_pylist() if value == value]  # noqa: PLR0124  NaN
                least, most = (instant(left), instant(right)) if name in TIMES else (left, right)
                numbers = [instant(row) for row in rows] if name in TIMES else rows
                is_last = place == len(found) - 1
                true = sum(least <= row < most or (is_last and row == most) for row in numbers)
                assert lo == count == hi == true, (name, bins, left, right)
            if bins.isdecimal():
                edges = [found[0][0], *(row[1] for row in found)]
                expected = wh.histogram(int(bins), mode="exact").edges
                assert [is_same(name, *pair) for pair in zip(edges, expected, strict=True)] == [True] * len(
                    edges
                )


def test_edges_are_those_that_were_used(worlds: dict[str, query.Warehouse]) -> None:
    check_bins(worlds)


def test_edges_in_the_type_of_the_measure_are_the_broken_variant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_rows, "edge_type", lambda own, _given, **_: own)
    with pytest.raises((AssertionError, ValueError)):
        check_bins({"whole": made(tmp_path / "w", pa.table({"whole": COLUMNS["whole"]}))})


def test_points_by_lateral_parameters_and_views_have_the_type_of_their_column(
    worlds: dict[str, query.Warehouse],
) -> None:
    wh = worlds["whole"]
    rows = wh.sql("SELECT value, rank FROM (VALUES (2.5), (-1)) t(x), LATERAL rank(t.x, mode := 'exact')")
    assert sorted(rows.fetchall()) == [(Decimal("-1.0"), 3), (Decimal("2.5"), 6)]
    for point in (2.5, 2**53 + 1, 1e30, INF):
        assert wh.sql("SELECT value FROM rank($x)", params={"x": point}).fetchall() == [(point,)]
    assert wh.sql("SELECT value FROM rank(2)").types == ["BIGINT"]
    assert wh.sql("SELECT value FROM cdf()").types == ["BIGINT"]
    assert wh.sql("SELECT * FROM rank(NULL)").fetchall() == []


def check_nan(wh: query.Warehouse, connection: duckdb.DuckDBPyConnection) -> None:
    assert repr(wh.sql("SELECT value, low, high FROM quantile(1)").fetchall()) == "[(nan, nan, nan)]"
    groups = wh.sql("SELECT value FROM quantile(0.5, \"by\" := 'k', \"groups\" := ['a', 'b', 'z'])")
    assert repr(groups.fetchall()) == "[(1.0,), (nan,), (None,)]"
    for summary in (wh.sql("FROM summary"), connection.sql("FROM nans_summary")):
        assert repr(summary.select("value").fetchall()) == "[(2.0,), (nan,), (nan,), (nan,), (nan,)]"
    # In DuckDB NaN is above all numbers, in the answers as in the events.
    (above,) = wh.sql("SELECT count(*) FROM quantile([0.25, 1.0]) WHERE value > 100").fetchall()
    assert above == (1,)


def test_nan_is_not_null(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"x": [1.0, 2.0, NAN, NAN], "k": ["a", "a", "b", "b"]})
    wh = made(tmp_path / "nans", table, key="k", groups=["k"])
    with duckdb.connect() as connection:
        query.register_duckdb(connection, wh)
        check_nan(wh, connection)
        plain = duckdb_calls._plain
        nan_as_null = lambda value: None if value != value else plain(value)  # noqa: E731, PLR0124  broken variant
        monkeypatch.setattr(duckdb_calls, "_plain", nan_as_null)
        with pytest.raises(AssertionError):
            check_nan(wh, connection)


def test_what_has_no_zone_is_utc_whatever_the_zone_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [datetime(2024, 3, 10, hour, 30, tzinfo=UTC) for hour in (1, 6, 7)]
    table = pa.table({"x": [1.0, 2.0, 3.0], "t": pa.array(times, pa.timestamp("us", "UTC"))})
    wh = made(tmp_path / "w", table, time="t", tick="1h")
    bound = "TIMESTAMP '2024-03-10 05:00:00'"
    connect = duckdb.connect
    with connect() as elsewhere:
        elsewhere.execute("SET TimeZone = 'America/New_York'")
        monkeypatch.setattr(duckdb, "connect", lambda **_: elsewhere)  # as where the machine has that zone
        assert wh.sql(f"SELECT count(*) FROM events WHERE t < {bound}").fetchall() == [(1,)]
        assert wh.sql("SELECT DISTINCT t::DATE FROM events").fetchall() == [(date(2024, 3, 10),)]
    with connect() as own:  # a connection of the user's: its views have instants, and its zone reads literals
        own.execute("SET TimeZone = 'America/New_York'")
        query.register_duckdb(own, wh, "w")
        assert own.sql("SELECT t FROM w_events").types == ["TIMESTAMP WITH TIME ZONE"]
        instants = own.sql("SELECT epoch_us(t) FROM w_events ORDER BY t").fetchall()
        assert instants == [(int(one.timestamp()) * 10**6,) for one in times]
        literal = f"SELECT count(*) FROM w_events WHERE t < {bound}"
        assert own.sql(literal).fetchall() == [(3,)]  # the broken variant of our own connection
        for since in (bound, "'2024-03-10 05:00'", "TIMESTAMPTZ '2024-03-10 00:00:00-05'"):
            text = f'SELECT n + m, epoch_us("window".start) FROM w_quantile(1, since := {since})'
            assert own.sql(text).fetchall() == [
                (2, int(datetime(2024, 3, 10, 5, tzinfo=UTC).timestamp()) * 10**6)
            ]


def test_a_refusal_is_our_line_alone(
    worlds: dict[str, query.Warehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    wh = worlds["whole"]
    with duckdb.connect() as own:
        query.register_duckdb(own, wh, "w")
        for text in ("quantile(1.5)", "rank(0, 'best')", "top(3)", "histogram(0)", "rank('a')"):
            with pytest.raises(InputError) as ours:
                wh.sql(f"FROM {text}").fetchall()
            with pytest.raises(duckdb.Error) as wrapped:
                own.sql(f"FROM w_{text}").fetchall()
            assert str(wrapped.value) == f"Invalid Input Error: {ours.value}"
            assert len(str(ours.value).splitlines()) == 1
            assert not {"UDF", "Python"} & set(str(ours.value).split()), text
        # The broken variant.
        bare = inspect.unwrap(pinned_readers.PinnedReaders.answers_of)
        monkeypatch.setattr(pinned_readers.PinnedReaders, "answers_of", bare)
        query.register_duckdb(own, wh, "w")
        with pytest.raises(duckdb.Error, match="executing the UDF"):
            own.sql("FROM w_quantile(2)").fetchall()


def test_texts_of_types_are_read() -> None:
    text = (
        'STRUCT(x DECIMAL(2,1)[], "wh""ere" MAP(VARCHAR, STRUCT(a ENUM(\'a,)\'))), z INTEGER[3][], n "NULL")'
    )
    inner = Kind("struct", (("a", Kind("enum")),))
    assert parse_kind(text) == Kind(
        "struct",
        (
            ("x", Kind("list", (("element", Kind("decimal(2,1)")),))),
            ('wh"ere', Kind("map", (("", Kind("varchar")), ("", inner)))),
            ("z", Kind("list", (("element", Kind("list", (("element", Kind("integer")),))),))),
            ("n", Kind(None)),
        ),
    )
    assert parse_kind("TIMESTAMP WITH TIME ZONE") == Kind("timestamp with time zone")
