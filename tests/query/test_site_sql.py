"""SQL over several warehouses: the rows and the answers of all, each with the name of its warehouse."""

from __future__ import annotations

import math
import random
import shutil
from collections import Counter
from typing import Any

import duckdb
import pytest

from tests.query.siteworld import Sites, drawn, made, table
from tidemark import query, warehouse
from tidemark.query.sql import duckdb_sql
from tidemark.warehouse.errors import InputError, NotAWarehouse


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Sites:
    """Three warehouses with live rows in each; tests do not change them."""
    world = made(tmp_path_factory.mktemp("sites"), 5, 3)
    for name in world.rows:
        world.stream(name, drawn(random.Random(name), 50), 9)
    return world


def counted(rows: list[dict[str, Any]]) -> Counter[str]:
    """The rows, by what does not depend on the zone of a time and the zeros of a decimal."""
    return Counter(
        repr([str(row["at"]), row["x"], row["d"] and float(row["d"]), row["k"], row["g"]]) for row in rows
    )


def is_number(x: float | None) -> bool:
    return x is not None and not math.isnan(x)


def rows_of(wh: query.Warehouse, view: str) -> dict[str, Counter[str]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in wh.sql(f"FROM {view}").to_arrow_table().to_pylist():
        found.setdefault(row["_site"], []).append(row)
    return {name: counted(rows) for name, rows in found.items()}


def check_views(world: Sites) -> None:
    wh = world.reader
    history = {name: world.rows[name][: len(world.rows[name]) - len(world.live[name])] for name in world.rows}
    assert rows_of(wh, "events") == {name: counted(rows) for name, rows in world.rows.items()}
    assert rows_of(wh, "live") == {name: counted(rows) for name, rows in world.live.items() if rows}
    assert Counter(wh.sql("SELECT _site FROM history").fetchall()) == Counter(
        (name,) for name, rows in history.items() for _ in rows
    )


def test_views_have_the_rows_of_each_warehouse(world: Sites) -> None:
    check_views(world)
    steps = world.reader.sql("SELECT _site, sum(rows) FROM steps GROUP BY 1").fetchall()
    history = {name: len(world.rows[name]) - len(world.live[name]) for name in world.rows}
    assert dict(steps) == history
    runs = world.reader.sql("SELECT _site, sum(rows) FROM runs WHERE projection = 'x' GROUP BY 1").fetchall()
    stored = {
        name: sum(is_number(row["x"]) for row in world.rows[name][:rows]) for name, rows in history.items()
    }
    assert dict(runs) == stored


def test_a_warehouse_that_is_left_out_is_noticed(world: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    right = duckdb_sql._of_all
    monkeypatch.setattr(
        duckdb_sql, "_of_all", lambda *given: right(*given).rsplit(" UNION ALL BY NAME ", 1)[0]
    )
    with pytest.raises(AssertionError):
        check_views(Sites(world.folder, world.rows, world.live))


@pytest.mark.parametrize(
    "call",
    [
        "quantile(0.9)",
        "quantile(0.5, by := 'g')",
        "rank(12.5)",
        "histogram(5)",
        "summary(by := 'g')",
        "frequency('a')",
        "top(3)",
        "heavy_hitters(0.05)",
        """"distinct"(mode := 'exact')""",
        "self_join()",
        "quantile(0.5, since := TIMESTAMPTZ '2024-03-03', every := '2d')",
        """quantile(0.5, "where" := MAP {'k': 'b'})""",
    ],
)
def test_functions_answer_as_the_reader_does(world: Sites, call: str) -> None:
    """Those of one warehouse with all rows, where both are exact; and the versions of each warehouse."""
    found = world.reader.sql(f"FROM {call}").to_arrow_table().to_pylist()
    expected = world.whole.sql(f"FROM {call}").to_arrow_table().to_pylist()
    assert found
    for row in found:
        assert {name for name, _ in row["as_of"]} == set(world.rows)
        assert all(versions["steps"] >= 0 for _, versions in row["as_of"])
    own = {"value", "rank", "rank_lo", "left", "right", "count", "total", "sum", "group", "N", "window"}
    shown = [{name: row[name] for name in row if name in own} for row in found]
    assert repr(shown) == repr([{name: row[name] for name in row if name in own} for row in expected])


def test_the_summary_has_the_rows_of_all(world: Sites) -> None:
    found = world.reader.sql(
        "SELECT measure, phi, n + m + nulls, value FROM summary WHERE phi = 0.5"
    ).fetchall()
    asked = [world.reader.quantile(0.5, name) for name in ("x", "d")]
    assert [(row[0], row[3]) for row in found] == [(one.measure, float(one.value)) for one in asked]
    assert {row[2] for row in found} == {len(world.all_rows)}


def test_a_statement_joins_rows_and_answers(world: Sites) -> None:
    found = world.reader.sql(
        "SELECT e._site, count(*) FROM events e JOIN quantile(0.9, 'x') q ON e.x >= q.value "
        "WHERE NOT isnan(e.x) GROUP BY 1"
    ).fetchall()
    limit = world.reader.quantile(0.9, "x").value
    rows = [(name, row["x"]) for name, rows in world.rows.items() for row in rows]
    is_above = [name for name, x in rows if is_number(x) and x >= limit]
    assert Counter(dict(found)) == Counter(is_above)


def test_statements_see_new_rows_and_a_transaction_does_not(pair: Sites) -> None:
    connection = duckdb.connect()
    query.register_duckdb(connection, pair.reader, "two")
    ask = "SELECT (SELECT count(*) FROM two_events), (SELECT max(n + m + nulls) FROM two_quantile(0.5))"
    before = len(pair.all_rows)
    connection.execute("BEGIN")
    assert connection.execute(ask).fetchall() == [(before, before)]
    pair.stream("site 1", drawn(random.Random(1), 7), 77)
    assert connection.execute(ask).fetchall() == [(before, before)]
    connection.execute("COMMIT")
    assert connection.execute(ask).fetchall() == [(before + 7, before + 7)]
    pair.load_live("site 0")
    assert connection.execute(ask).fetchall() == [(before + 7, before + 7)]


def test_a_name_is_needed_and_names_may_be_anything(two_sites: Sites) -> None:
    uris = dict(zip(["runs", 'it\'s "b" -- x'], two_sites.uris.values(), strict=True))
    wh = query.open(uris)
    counts = [(name, len(rows)) for name, rows in zip(uris, two_sites.rows.values(), strict=True)]
    assert sorted(wh.sql("SELECT _site, count(*) FROM events GROUP BY 1").fetchall()) == sorted(counts)
    ((as_of,),) = wh.sql("SELECT as_of FROM quantile(0.5)").fetchall()
    assert set(as_of) == set(uris)
    with pytest.raises(InputError, match="Give name="):
        query.register_duckdb(duckdb.connect(), wh)


def test_a_warehouse_that_was_made_again_is_named(pair: Sites) -> None:
    assert pair.reader.sql("SELECT count(*) FROM events").fetchall() == [(len(pair.all_rows),)]
    shutil.rmtree(pair.folder / "site 1")
    with pytest.raises(NotAWarehouse, match="site 1"):
        pair.reader.sql("SELECT count(*) FROM events").fetchall()


def test_columns_that_one_warehouse_lacks_are_null_there(pair: Sites) -> None:
    warehouse.load(
        None,
        pair.folder / "site 0",
        table(pair.rows["site 0"][:5]).append_column("note", [["one"] * 5]),
        "with a note",
        evolve=True,
        again=True,
    )
    found = (
        pair.open().sql("SELECT _site, count(*), count(note) FROM events GROUP BY 1 ORDER BY 1").fetchall()
    )
    assert found == [("site 0", len(pair.rows["site 0"]) + 5, 5), ("site 1", len(pair.rows["site 1"]), 0)]


def test_the_moment_of_an_answer_has_its_rows_in_sql_too(pair: Sites) -> None:
    answer, before = pair.reader.quantile(0.5), len(pair.all_rows)
    pair.stream("site 0", drawn(random.Random(2), 5), 78)
    then = query.open(pair.uris, at=answer.moment)
    assert then.sql("SELECT count(*) FROM events").fetchall() == [(before,)]
    assert pair.reader.sql("SELECT count(*) FROM events").fetchall() == [(before + 5,)]
