"""Private columns: no file and no text has their values, and answers equal those of the plain twin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.warehouse.private_world import (
    CARDS,
    KEYS,
    NAMES,
    SCHEMA,
    Life,
    created,
    lived,
    rows,
    secret_in,
    traces,
)
from tidemark import query, stream, warehouse
from tidemark.query.scans import computed, expressions, index_places
from tidemark.query.scans.index_places import IndexRates
from tidemark.query.sql import duckdb_sql, statements
from tidemark.warehouse import InputError
from tidemark.warehouse.private import secrets
from tidemark.warehouse.private.tokens import Token
from tidemark.warehouse.removals import coming

pytestmark = pytest.mark.usefixtures("no_secrets")


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    secrets._known.clear()
    yield lived(tmp_path_factory.mktemp("private"))
    secrets._known.clear()


@pytest.mark.slow
def test_no_file_and_no_text_has_a_name(life: Life) -> None:
    assert traces(life.private, life.said) == []
    assert len(traces(life.plain, [])) > 10  # the search finds names
    assert len(life.said) > 10


def by_name(answers: Any) -> dict[Any, Any]:
    """The facts of each answer by its key; names as their tokens."""
    return {tokens(one.value): (one.count, one.lo, one.hi, one.in_history) for one in answers}


def tokens(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(tokens, value))
    return value if isinstance(value, Token) or value is None else query.token(value)


@pytest.mark.slow
def test_every_question_about_keys_is_answered_as_by_the_twin(life: Life) -> None:
    private, plain = map(query.open, (life.private, life.plain))
    for key, values in (("user", NAMES), ("card", CARDS), (["user", "card"], [(NAMES[0], CARDS[0])])):
        for mode in ("approximate", "exact"):
            for value in values:
                one, other = (wh.frequency(value, key=key, mode=mode) for wh in (private, plain))
                assert (one.count, one.lo, one.hi, one.n) == (other.count, other.lo, other.hi, other.n)
            for name, argument in (("top", 50), ("heavy_hitters", 0.01)):
                one, other = (getattr(wh, name)(argument, key=key, mode=mode) for wh in (private, plain))
                assert by_name(one) == by_name(other)
        distinct = [wh.distinct(key=key, mode="exact") for wh in (private, plain)]
        assert distinct[0].count == distinct[1].count
        assert private.self_join(key=key).count == plain.self_join(key=key).count
        kept = [{tokens(one.value): one.lo for one in wh.persistent(0.2, key=key)} for wh in (private, plain)]
        assert kept[0] == kept[1]
        assert kept[0]
    for where in ({"user": NAMES[1]}, {"user": NAMES[:2], "card": CARDS[0]}, f"user <> '{NAMES[0]}'",
                  f"user IN ('{NAMES[0]}', '{NAMES[1]}') AND card = {CARDS[1]}", "user IS NULL"):  # fmt: skip
        one, other = (wh.quantile(0.5, where=where, mode="exact") for wh in (private, plain))
        assert (one.value, one.n) == (other.value, other.n)
    groups = [
        {tokens((one.group or {})["user"]): one.value for one in wh.quantile(0.9, by="user")}
        for wh in (private, plain)
    ]
    assert groups[0] == groups[1]


SQL = f"user = '{NAMES[0]}'"


@pytest.mark.parametrize(
    "statement",
    [
        f"SELECT count(*) FROM events WHERE {SQL}",
        f"SELECT count(*) FROM live WHERE '{NAMES[1]}' <> user",
        f"SELECT count(*) FROM events WHERE user IN ('{NAMES[0]}', '{NAMES[4]}') OR card = {CARDS[2]}",
        f"WITH t AS (SELECT user u, id FROM history) SELECT count(*), sum(id) FROM t WHERE u = '{NAMES[0]}'",
        f"SELECT count(*) FILTER (WHERE {SQL}), sum(CASE WHEN {SQL} THEN id ELSE 0 END) FROM events",
        f"SELECT CASE user WHEN '{NAMES[0]}' THEN 1 ELSE 0 END c, count(*) FROM events GROUP BY c ORDER BY c",
        "SELECT count(DISTINCT user), count(user) FROM events",
        "SELECT id % 3 AS user, count(*) FROM events GROUP BY ALL ORDER BY user DESC, count(*)",
        "SELECT count(*) FROM live a JOIN live b ON a.user = b.user",
        "SELECT count(*) FROM events WHERE user IN (SELECT user FROM live)",
        "SELECT count(*) FROM (SELECT user, count(*) n FROM events GROUP BY user) WHERE n > 10",
        f"SELECT sum(count) FROM frequency('{NAMES[0]}', key := 'user')",
    ],
)
def test_sql_answers_as_the_twin(readers: list[query.Warehouse], statement: str) -> None:
    private, by_index, plain = (wh.sql(statement).fetchall() for wh in readers)
    assert private == by_index == plain
    assert any(any(row) for row in plain)


@pytest.fixture(scope="module")
def indexed(life: Life, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The warehouse with an index on each private column."""
    copied = tmp_path_factory.mktemp("indexed") / "w"
    warehouse.copy(life.private, copied)
    for name in ("user", "card"):
        warehouse.alter(None, copied, add_index=name)
    return copied


@pytest.fixture(scope="module")
def readers(life: Life, indexed: Path) -> list[query.Warehouse]:
    """The warehouse, the one with indexes, and the twin."""
    return [query.open(uri) for uri in (life.private, indexed, life.plain)]


@pytest.mark.slow
def test_an_index_finds_the_rows_of_a_name(
    readers: list[query.Warehouse], indexed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_places, "RATES", IndexRates(row=1e9, group=1))  # the world is small
    _, wh, plain = readers
    for condition, params in (
        (SQL, None),
        (f"'{NAMES[1]}' = user AND delay > 3", None),
        (f"user IN ('{NAMES[0]}', '{NAMES[4]}') OR card = {CARDS[2]}", None),
        ("user = ? OR user = ?", [NAMES[0], NAMES[2]]),
        ("user = $name AND id < $id", {"name": NAMES[0], "id": 250}),
        ("user = 'nobody'", None),
    ):
        statement = f"SELECT id FROM events WHERE {condition} ORDER BY id"
        found, expected = (one.sql(statement, params=params).fetchall() for one in (wh, plain))
        assert found == expected
        (told,) = wh.explain(statement, params=params).parts
        assert told.way == "index"
        assert len(found) <= told.rows_left < told.rows
        assert not any(name in str(told) for name in NAMES)
    for where in (f"{SQL} AND id < 9999", {"card": CARDS[0]}, {"user": NAMES[1:3], "card": CARDS[:2]}):
        one, other = (wh_.quantile(0.5, where=where, mode="exact") for wh_ in (wh, plain))
        assert (one.value, one.n) == (other.value, other.n)
        assert (one.rows_scanned or 0) < (other.rows_scanned or 0)
    assert warehouse.verify(indexed).ok
    assert traces(indexed, []) == []


REFUSED = [
    f"user > '{NAMES[0]}'", "user LIKE 'Zo%'", f"user || '' = '{NAMES[0]}'", f"user::VARCHAR = '{NAMES[0]}'",
    f"coalesce(user, '') = '{NAMES[0]}'", f"upper(user) = '{NAMES[0]}'", f"user = lower('{NAMES[0]}')",
    f"user BETWEEN '{NAMES[0]}' AND '{NAMES[1]}'", f"CASE WHEN true THEN user END = '{NAMES[0]}'",
    "card + 0 = 7", "card = 1.5",
]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_would_compare_a_name_is_refused(life: Life, readers: list[query.Warehouse], text: str) -> None:
    wh = readers[0]
    for call in (
        lambda: wh.quantile(0.5, where=text),
        lambda: wh.sql(f"SELECT count(*) FROM events WHERE {text}").fetchall(),
        lambda: warehouse.delete(None, life.private, where=text, dry_run=True),
    ):
        with pytest.raises(InputError) as error:
            call()
        assert NAMES[0] not in str(error.value)


@pytest.mark.parametrize(
    "statement",
    [
        f"WITH t(u) AS (SELECT user FROM events) SELECT count(*) FROM t WHERE u::VARCHAR = '{NAMES[0]}'",
        f"SELECT count(*) FROM (SELECT user AS u FROM events) WHERE u::VARCHAR = '{NAMES[0]}'",
        f"SELECT count(*) FROM events e WHERE e::VARCHAR LIKE '%{NAMES[0]}%'",
        f"SELECT count(*) FROM (SELECT user.token AS u FROM events) WHERE u = '{NAMES[0]}'",
        f"SELECT count(*) FROM events JOIN (SELECT '{NAMES[0]}' AS n) ON user = n",
        f"SELECT count(*) FROM events WHERE user = (SELECT '{NAMES[0]}')",
        f"SELECT count(*) FROM top(5, key := 'user') WHERE value = '{NAMES[0]}'",
        "SELECT user FROM events ORDER BY user",
        "SELECT user AS u, id AS user FROM events ORDER BY u",
        "SELECT user, id AS user FROM events ORDER BY user",
        "SELECT *, id AS user FROM events ORDER BY user",
        "SELECT id AS user FROM events ORDER BY user || ''",
        "SELECT min(user) FROM events",
        "SELECT COLUMNS('us.*')::VARCHAR FROM events",
        "SELECT * RENAME (user AS u) FROM events",
        f"SELECT count(*) FROM (SELECT user.* FROM events) WHERE token = '{NAMES[0]}'",
        f"SELECT count(*) FROM events WHERE (SELECT user FROM live LIMIT 1)::VARCHAR = '{NAMES[0]}'",
        f"SELECT count(*) FROM events WHERE '{NAMES[0]}' IN (SELECT user FROM live)",
        f"SELECT count(*) FROM events WHERE user IN (SELECT '{NAMES[0]}')",
        f"FROM (SELECT NULL AS u UNION ALL SELECT user FROM events) WHERE u::VARCHAR = '{NAMES[0]}'",
        f"FROM (SELECT any_value(user) AS u FROM events) WHERE u::VARCHAR = '{NAMES[0]}'",
        f"FROM query('SELECT user::VARCHAR AS u FROM events') WHERE u = '{NAMES[0]}'",
        f"FROM query_table('events') WHERE user::VARCHAR = '{NAMES[0]}'",
        f"""FROM quantile(0.5, by := ['user']) WHERE "group"['user'] = '{NAMES[0]}'""",
        f"FROM (SELECT user FROM live) JOIN (SELECT '{NAMES[0]}' AS user) USING (user)",
        "FROM events PIVOT (count(*) FOR user IN ('a'))",
        "FROM (SUMMARIZE events)",
        f"SELECT count(*) FROM events WHERE user IN ('{NAMES[0]}', upper('x'))",
        f"SELECT count(*) FROM events WHERE (user, id) = ('{NAMES[0]}', 1)",
    ],
)
def test_no_name_of_sql_hides_a_private_column(readers: list[query.Warehouse], statement: str) -> None:
    with pytest.raises(InputError):
        readers[0].sql(statement).fetchall()


def test_what_cannot_be_read_is_refused_without_its_names(life: Life) -> None:
    wh = query.open(life.private)
    composite = KEYS[-1]
    for call in (
        lambda: wh.sql(f"SELECT count(*) FORM events WHERE user = '{NAMES[0]}'"),
        lambda: wh.frequency(NAMES[0], key=composite),
        lambda: wh.frequency((NAMES[0],), key=composite),
        lambda: wh.frequency({"user": NAMES[0], "no": 1}, key=composite),
    ):
        assert NAMES[0] not in life.refused(call)


def test_order_ranges_and_prefixes_are_refused_with_the_reason(life: Life) -> None:
    wh = query.open(life.private)
    with pytest.raises(InputError, match="no order"):
        wh.key_range("a", "b", key="user")
    with pytest.raises(InputError, match="no prefixes"):
        wh.hierarchy(0.1, "-", key="user")
    with pytest.raises(InputError, match="type float"):
        wh.frequency(1.5, key="user")


def test_a_wrong_or_missing_secret_is_refused_before_any_write(life: Life, tmp_path: Path) -> None:
    known = dict(secrets._known)
    before = sorted(life.private.rglob("*"))
    calls: list[Callable[[], Any]] = [
        lambda: warehouse.load(None, life.private, rows(1, 3), "new"),
        lambda: stream.append(None, life.private, rows(1, 3), source="t", batch=0),
        lambda: warehouse.delete(None, life.private, keys=pa.table({"user": [NAMES[0]]})),
        lambda: warehouse.delete(None, life.private, where=SQL),
        lambda: warehouse.correct(None, life.private, rows(1, 3), batch="t", on=["id"]),
        lambda: query.open(life.private).frequency(NAMES[0], key="user"),
        lambda: query.open(life.private).sql(f"SELECT count(*) FROM events WHERE {SQL}"),
        lambda: query.open(life.private).quantile(0.5, where=SQL),
    ]
    try:
        for others in (0, 1):
            secrets._known.clear()
            if others:
                secrets.use_secret(file=secret_in(tmp_path / "other"))
            for call in calls:
                with pytest.raises(InputError, match=r"private col|no secret|another secret"):
                    call()
            assert sorted(life.private.rglob("*")) == before
        with pytest.raises(InputError, match="fingerprint"):
            warehouse.create(None, life.private, ["delay"], secret_file=tmp_path / "other")
        assert query.open(life.private).top(2, key="user")[0].count  # lists need no secret
    finally:
        secrets._known.clear()
        secrets._known.update(known)


def test_several_warehouses_have_one_secret(life: Life, tmp_path: Path) -> None:
    warehouse.create(
        None, tmp_path / "other", ["delay"], keys=KEYS, groups=["user"], time="time", schema=SCHEMA,
        private=True, secret_file=life.folder / "secret",
    )  # fmt: skip
    warehouse.load(None, tmp_path / "other", rows(0, 90), "a")
    both = query.open({"a": life.private, "b": tmp_path / "other"})
    one, other, all_ = (wh.frequency(NAMES[0], key="user").count for wh in (
        query.open(life.private), query.open(tmp_path / "other"), both))  # fmt: skip
    assert all_ == one + other
    assert both.sql(f"SELECT count(*) FROM events WHERE {SQL}").fetchall() == [(all_,)]
    with pytest.raises(InputError, match="private columns must be equal"):
        query.open({"a": life.private, "b": life.plain})
    with pytest.raises(InputError, match="private columns"):
        query.connect({"a": life.private, "b": life.plain}).sql("SELECT count(*) FROM a")


@pytest.mark.slow
def test_statements_join_warehouses_of_one_secret(life: Life, tmp_path: Path) -> None:
    own: dict[str, Any] = {"keys": KEYS, "groups": ["user"], "time": "time", "schema": SCHEMA}
    warehouse.create(None, tmp_path / "plain", ["delay"], **own)
    secret = life.folder / "secret"
    warehouse.create(None, tmp_path / "other", ["delay"], private=True, secret_file=secret, **own)
    for name in ("plain", "other"):
        warehouse.load(None, tmp_path / name, rows(0, 90), "a")
    private = query.connect({"a": life.private, "b": tmp_path / "other"})
    plain = query.connect({"a": life.plain, "b": tmp_path / "plain"})
    for statement, params in (
        (f"FROM a JOIN b ON a.user = b.user WHERE a.user IN ('{NAMES[0]}', ?)", [NAMES[3]]),
        ("FROM a JOIN b USING (user)", None),
        (f"FROM b WHERE user IN (SELECT user FROM a) AND card <> {CARDS[0]}", None),
    ):
        asked = f"SELECT count(*) {statement}"
        assert private.sql(asked, params=params).fetchall() == plain.sql(asked, params=params).fetchall()
    ((count,),) = private.sql(f"SELECT count FROM b_frequency('{NAMES[0]}', key := 'user')").fetchall()
    assert count == rows(0, 90)["user"].to_pylist().count(NAMES[0])
    for statement in (
        f"SELECT count(*) FROM a JOIN b USING (id) WHERE b.user::VARCHAR = '{NAMES[0]}'",
        f"FROM b_top(5, key := 'user') WHERE value::VARCHAR = '{NAMES[0]}'",
    ):
        with pytest.raises(InputError, match="not run"):
            private.sql(statement)
    with pytest.raises(InputError, match="private columns"):
        private.sql("FROM a").filter("true")
    foreign = created(tmp_path, key="card", private=["card"], time=None, schema=SCHEMA.remove(0))
    with pytest.raises(InputError, match="two have different secrets"):
        query.connect({"a": life.private, "c": foreign}).sql("SELECT count(*) FROM a")


def test_rows_of_a_statement_are_read_and_nothing_is_built_on_them(life: Life) -> None:
    found = query.open(life.private).sql("SELECT user, id FROM events WHERE id < 9")
    assert len(found) == len(found.fetchall()) == len(found.df()) == found.limit(99).to_arrow_table().num_rows
    assert {row[0]["token"] for row in found.fetchall() if row[0]} <= {str(query.token(one)) for one in NAMES}
    for build in ("filter", "project", "aggregate", "query", "join", "to_view", "user"):
        with pytest.raises(InputError, match="private columns"):
            getattr(found.limit(3), build)
    assert not hasattr(found, "no_such_method")


CASE = f"CASE WHEN user = '{NAMES[0]}' THEN 'one' ELSE 'others' END"


@pytest.mark.parametrize(
    "ask",
    [
        lambda wh: wh.quantile(0.5, by=CASE),
        lambda wh: wh.quantile(0.5, f"CASE WHEN user = '{NAMES[0]}' THEN delay END", by="id % 2"),
        lambda wh: wh.top(3, key="card", by=["id % 2", CASE]),
    ],
)
def test_answers_name_what_is_computed_without_values(
    readers: list[query.Warehouse], ask: Callable[[query.Warehouse], Any]
) -> None:
    private, _, plain = (ask(wh) for wh in readers)
    groups = [[([*one.group.values()], one.n) for one in found] for found in (private, plain)]
    assert groups[0] == groups[1]
    assert NAMES[0] in f"{plain!r} {plain.to_rows()}"
    assert NAMES[0] not in f"{private!r} {private.to_rows()} {private.caption} {private[0]!r}"


@pytest.mark.parametrize("text", ["id % 2", "id  % 2 = 0", "CASE WHEN delay > 1 THEN 'late' END"])
def test_an_expression_without_private_columns_is_named_as_written(
    readers: list[query.Warehouse], text: str
) -> None:
    private, _, plain = ([one.group for one in wh.quantile(0.5, by=text)] for wh in readers)
    assert private == plain
    assert {name for group in private for name in group or ()} == {text}


def test_an_expression_that_comes_twice_is_refused_without_its_values(life: Life) -> None:
    wh = query.open(life.private)
    for by in ([CASE, CASE], [CASE, f"{CASE} "]):
        text = life.refused(partial(wh.quantile, 0.5, by=by))
        assert "twice" in text
        assert NAMES[0] not in text


def told_of_a_row_that_is_not_there(life: Life) -> str:
    given = rows(9_000, 1)
    text = life.refused(lambda: warehouse.correct(None, life.private, given, batch="no", on=["user", "id"]))
    return text.replace(str(query.token(given.column("user")[0].as_py())), "its token")


def test_a_row_to_correct_is_told_by_its_tokens(life: Life) -> None:
    assert "such as user = 'its token', id = 9000" in told_of_a_row_that_is_not_there(life)


def test_connections_of_the_caller_are_refused(life: Life) -> None:
    with duckdb.connect() as connection, pytest.raises(InputError, match="private columns"):
        query.register_duckdb(connection, life.private, "w")


@pytest.mark.slow
def test_conditions_of_alerts_have_tokens(life: Life, tmp_path: Path) -> None:
    """Their text is in notices and in the file of states."""
    empty, state = created(tmp_path), tmp_path / "state.json"
    for text in (
        f"frequency('{NAMES[0]}', key='user') > 1",
        f"quantile(0.5, where=\"user = '{NAMES[0]}'\") > 1",
        f"quantile(0.5, measure=\"CASE WHEN user = '{NAMES[0]}' THEN delay END\") > 1",
        f"quantile(0.5, by=[\"user = '{NAMES[0]}'\"]) > 1",
        f"frequency({CARDS[0]}, key='card') > 1",
        f"quantile(0.5, by=['user'], groups=['{NAMES[0]}']) > 1",
    ):
        query.open(life.private).quantile(0.5, where=SQL)  # this condition is known already
        for uri in (life.private, empty) if "card" not in text else (life.private,):
            with pytest.raises(InputError, match="token"):
                query.alert(text, wh=query.open(uri), state=state)
    assert not state.exists()
    taken: list[dict[str, Any]] = []
    one = query.token(NAMES[0], query.open(life.private).options.fingerprint)
    texts = (f"frequency('{one}', key='user') > 1", f"quantile(0.9, by='user', where=\"user = '{one}'\") > 1")
    with query.alert(*texts, wh=query.open(life.private), state=state, notify=taken.append) as alert:
        assert len(alert.check()) == 2
    assert {(notice["group"] or {"user": None})["user"] for notice in taken} == {None, str(one)}
    assert traces(tmp_path, [str(taken)]) == []


def test_the_text_of_an_expression_with_its_values_is_found(
    readers: list[query.Warehouse], monkeypatch: pytest.MonkeyPatch
) -> None:

    def keeps_text(found: expressions.Expression, **others: Any) -> expressions.Expression:
        return replace(found, **{name: value for name, value in others.items() if name != "text"})

    monkeypatch.setattr(expressions, "replace", keeps_text)
    computed._known_expression.cache_clear()
    found = readers[0].quantile(0.5, by=CASE)
    computed._known_expression.cache_clear()
    assert NAMES[0] in repr(found)


def test_bytes_in_the_place_of_a_token_are_found(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coming, "_decoded", lambda _, value: value)
    assert "its token" not in told_of_a_row_that_is_not_there(life)


def test_a_door_that_compares_the_name_is_found(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "with_tokens", lambda statement, params, *_: (statement, params))
    monkeypatch.setattr(duckdb_sql, "_token_struct", lambda column, _: column)
    found = query.open(life.private).sql("SELECT count(*) FROM events WHERE user = 'plain name'").fetchall()
    assert found == [(0,)]  # without a word


def test_doors_without_private_columns_refuse_them(life: Life, tmp_path: Path) -> None:
    """Text of no known columns would be shown in errors."""
    (tmp_path / "t.csv").write_text(f"user,delay\n{NAMES[0]},1\n")
    with pytest.raises(InputError, match="private columns"):
        warehouse.load(None, life.private, tmp_path / "t.csv", "t", evolve=True)
    warehouse.create(
        None, tmp_path / "w", ["delay"], key="user", private=True, secret_file=life.folder / "secret"
    )
    with pytest.raises(InputError, match="private columns"):
        warehouse.load(None, tmp_path / "w", tmp_path / "t.csv", "t")


@pytest.mark.slow
def test_maintenance_repair_and_verify_go_on_without_the_secret(life: Life, tmp_path: Path) -> None:
    known = dict(secrets._known)
    secrets._known.clear()
    try:
        warehouse.copy(life.private, tmp_path / "copy")
        assert warehouse.verify(tmp_path / "copy").ok
        warehouse.load(None, tmp_path / "copy")
        warehouse.maintain(None, tmp_path / "copy")
        warehouse.alter(None, tmp_path / "copy", add_group="card")
        assert warehouse.verify(tmp_path / "copy").ok
        assert traces(tmp_path / "copy", []) == []
        groups = query.open(tmp_path / "copy").quantile(0.5, by="card")
        assert all((one.group or {})["card"] for one in groups)
    finally:
        secrets._known.update(known)
