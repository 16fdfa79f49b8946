"""Statements that an index narrows give what they give without it."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from tests.query.indexworld import (
    START,
    IndexWorld,
)
from tidemark import query
from tidemark.query.scans import index_places
from tidemark.query.scans.index_places import IndexRates
from tidemark.warehouse import InputError

pytestmark = pytest.mark.usefixtures("index_pays")


@pytest.fixture(scope="module")
def world(index_world: IndexWorld) -> IndexWorld:
    return index_world


@pytest.fixture(scope="module")
def made(few_indexes: IndexWorld) -> IndexWorld:
    return few_indexes


STATEMENTS = {
    "alias": "SELECT sum(e.s) AS q FROM events AS e WHERE e.k = 'a'",
    "no alias": "FROM (SELECT events.n + 1 AS n FROM events WHERE events.n = 7) ORDER BY ALL",
    "names of columns": "SELECT a FROM events AS e(a, b, c) WHERE b = 7 ORDER BY 1",
    "case": "SELECT count(*) FROM Events WHERE K = 'a'",
    "é before": "SELECT 'é', count(*) AS \"né\" FROM events /* é */ WHERE k = 'é'",
    "join": "SELECT count(*) FROM events e JOIN events f ON e.s = f.s WHERE e.k = 'a' AND f.n = 7",
    "left join": "SELECT count(*) FROM (SELECT 1 AS s) a LEFT JOIN events e USING (s) WHERE e.k = 'a'",
    "full join": "SELECT count(*) FROM (SELECT 1 AS s) a FULL JOIN events e USING (s) WHERE e.k = 'a'",
    "asof": "SELECT a.v, e.n FROM (SELECT 1 AS v, TIMESTAMPTZ '2024-02-01' AS t) a ASOF JOIN events e "
    "ON a.t >= e.t WHERE e.n < 40",
    "positional": "SELECT count(*) FROM (SELECT 1) a POSITIONAL JOIN events e WHERE e.k = 'a'",
    "subquery": "SELECT count(*) FROM events WHERE s IN (SELECT s FROM events WHERE k = 'a') AND n = 7",
    "correlated": "SELECT count(*) FROM events e WHERE EXISTS (FROM events WHERE k = 'a' AND s = e.s)",
    "cte of this name": "WITH events AS (SELECT 'a' AS k, 1 AS n) SELECT count(*) FROM events WHERE k = 'a'",
    "union": "SELECT n FROM events WHERE k = 'a' UNION ALL SELECT n FROM events WHERE n = 7 ORDER BY 1",
    "alias of the select": "SELECT s AS n FROM events WHERE n = 7 ORDER BY 1",
    "window": "SELECT n, row_number() OVER (ORDER BY t, n, s, x) AS r FROM events WHERE k = 'a' ORDER BY r",
    "negated": "SELECT count(*) FROM events WHERE NOT (k = 'a' OR n = 7)",
    "text that quotes": "SELECT count(*) FROM events WHERE k = 'x''y'",
    "sample": "SELECT count(*) FROM events WHERE k = 'a' USING SAMPLE 100%",
    "sample of a table": "SELECT count(*) FROM events TABLESAMPLE 100% WHERE k = 'a'",
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_statements_of_all_forms_give_the_same(world: IndexWorld, name: str) -> None:
    found = query.open(world.path).sql(STATEMENTS[name])
    expected = world.sql(STATEMENTS[name])
    assert found.columns == expected.column_names
    assert repr(found.to_arrow_table().to_pylist()) == repr(expected.to_pylist())


def test_parameters_are_constants(world: IndexWorld) -> None:
    wh = query.open(world.path)
    for condition, params in (
        ("k = ? AND n > ?", ["a", -5]),
        ("k = $key", {"key": "é"}),
        ("d = ? OR t < ?", [date(2024, 1, 5), START + timedelta(days=3)]),
        ("m = ?", [Decimal("12.5")]),
        ("k = ?", [None]),
    ):
        statement = f"SELECT count(*) FROM events WHERE {condition}"
        world.oracle.register("events", world.kept)
        expected = world.oracle.execute(statement, params).fetchall()
        assert wh.sql(statement, params=params).fetchall() == expected
        assert len(wh.explain(statement, params=params).parts) == (params != [None])


def test_a_relation_that_is_run_again_sees_new_rows(made: IndexWorld, tmp_path: Path) -> None:
    world = made.copy(tmp_path)
    relation = query.open(world.path).sql("SELECT count(*) AS c FROM events WHERE k = 'a'")
    before = relation.to_arrow_table()
    world.append(3, count=200)
    world.load("more", count=200)
    assert relation.to_arrow_table() == world.sql("SELECT count(*) AS c FROM events WHERE k = 'a'") != before


def test_errors_are_those_of_the_statement_as_it_is(world: IndexWorld) -> None:
    for statement in ("SELECT nope FROM events WHERE k = 'a'", "SELECT n FROM events WHERE k = 'a' GROUP"):
        with pytest.raises(InputError) as raised:
            query.open(world.path).sql(statement).fetchall()
        assert "tidemark rows" not in str(raised.value)


def test_explain_tells_the_rows_that_are_left(world: IndexWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    wh, statement = query.open(world.path), "SELECT * FROM events WHERE k = 'a'"
    ((true,),) = wh.sql("SELECT count(*) FROM history WHERE k = 'a'").fetchall()
    ((live,),) = wh.sql("SELECT count(*) FROM live").fetchall()
    (plan,) = wh.explain(statement).parts
    assert (plan.way, plan.columns, plan.rows) == ("index", ("k",), len(world.kept))
    assert plan.rows_left == true + live  # no batch that is live has a part in the index
    assert plan.most >= true
    assert plan.files_left <= plan.files
    assert plan.row_groups_left < plan.row_groups
    assert "index on k" in str(wh.explain(statement))
    assert wh.explain("SELECT * FROM events WHERE s = 1").parts == []
    monkeypatch.setattr(index_places, "RATES", IndexRates())
    (plan,) = wh.explain(statement).parts
    assert (plan.way, plan.rows_left) == ("scan", len(world.kept))
