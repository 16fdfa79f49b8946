"""Spark SQL over private columns: it compares no token with text, and makes the tokens that others make."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.warehouse.private_world import (
    CARDS,
    NAMES,
    SCHEMA,
    rows,
    secret_in,
    traces,
)
from tidemark import query, stream, warehouse
from tidemark.jobs import sql_server
from tidemark.query.sql import spark_sql
from tidemark.warehouse import InputError
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.private import secrets
from tidemark.warehouse.settings.options import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("no_secrets")


# Spark SQL may not say of any of these that there are no rows.
ATTACKS = [
    "WHERE user = '{name}'", "WHERE user IN ('{name}', 'x')", "WHERE card = {card}", "WHERE user = user",
    "WHERE concat(user, '') = '{name}'", "WHERE CAST(user AS STRING) <=> '{name}'", "WHERE user IS NULL",
    "WHERE CASE user WHEN '{name}' THEN true ELSE false END", "WHERE to_json(struct(*)) LIKE '%{name}%'",
    "WHERE '{name}' IN (SELECT user FROM w_history)", "JOIN (SELECT '{name}' AS user) USING (user)",
    "LEFT ANTI JOIN (SELECT '{name}' AS n) ON user = n", "a JOIN w_live b ON a.user = b.user",
    "GROUP BY user", "HAVING count_if(user = '{name}') = 0",
]  # fmt: skip


def check_spark_sql(spark: SparkSession, uri: Path, given: pa.Table) -> None:
    """Private columns fail in every expression, and rows are found by tokens alone."""
    fingerprint = query.open(uri).options.fingerprint
    query.register_views(spark, uri, "w")
    parts = {
        view: spark.sql(f"SELECT * EXCEPT (user, card) FROM w_{view}").collect()
        for view in ("events", "history", "live")
    }
    assert len(parts["events"]) == given.num_rows
    assert sorted(parts["history"] + parts["live"]) == sorted(parts["events"])
    for attack in ATTACKS:
        statement = f"SELECT count(*) FROM w_events {attack.format(name=NAMES[1], card=CARDS[0])}"
        with pytest.raises(Exception, match="private column"):
            spark.sql(statement).collect()
    users, ids = (given.column(name).to_pylist() for name in ("user", "id"))
    for name in (*NAMES[:2], "nobody"):
        expected = sorted(number for user, number in zip(users, ids, strict=True) if user == name)
        found = spark.sql(f"SELECT id FROM w_user_events('{query.token(name, fingerprint)}')").collect()
        assert sorted(row[0] for row in found) == expected
    assert spark.sql("SELECT id FROM w_user_events(NULL)").collect() == []
    one, delays = (
        str(query.token(NAMES[1], fingerprint)),
        zip(users, given.column("delay").to_pylist(), strict=True),
    )
    least = spark.sql(
        f"SELECT value, group FROM w_quantile(0.0001D, where => map('user', '{one}'))"
    ).collect()
    assert least == [(min(delay for user, delay in delays if user == NAMES[1]), {})]
    for refused in (
        f"w_user_events('{NAMES[1]}')",
        f"w_user_events('token2{one[5:]}')",
        f"w_user_events('{one} ')",
        f"w_user_events('{one}') WHERE user = '{NAMES[1]}'",
        f"w_card_events({CARDS[0]})",
        f"w_quantile(0.5D, where => map('user', '{NAMES[1]}'))",
        "w_quantile(0.5D, by => 'user')",
        "w_quantile(0.5D, by => array('id', 'card'), `limit` => 100)",
    ):
        with pytest.raises(Exception, match="private column"):
            spark.sql(f"SELECT count(*) FROM {refused}").collect()
    for of_keys in (f"w_frequency('{one}')", "w_top(3)", "w_heavy_hitters(0.1D)", "w_live()"):
        with pytest.raises(Exception, match="UNRESOLVABLE_TABLE_VALUED_FUNCTION"):
            spark.sql(f"SELECT * FROM {of_keys}").collect()


def test_spark_makes_the_same_tokens_and_compares_none(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse.create(
        spark, tmp_path / "w", ["delay"], key="user", time="time", schema=SCHEMA, private=["user", "card"],
        secret_file=secret_in(tmp_path / "s"),
    )  # fmt: skip
    given = rows(0, 60)
    assert warehouse.load(spark, tmp_path / "w", spark.createDataFrame(given), "a").rows == 60
    assert warehouse.load(None, tmp_path / "w", given, "a").outcome == "known"
    stream.append(None, tmp_path / "w", rows(100, 5), source="s", batch=0)
    assert not stream.append(spark, tmp_path / "w", spark.createDataFrame(rows(100, 5)), source="s", batch=0)
    assert traces(tmp_path / "w", []) == []
    expected = given.column("user").to_pylist().count(NAMES[1]) + rows(100, 5).column(
        "user"
    ).to_pylist().count(NAMES[1])
    assert query.open(tmp_path / "w").frequency(NAMES[1], mode="exact").count == expected
    check_spark_sql(spark, tmp_path / "w", pa.concat_tables([given, rows(100, 5)]))
    with pytest.raises(InputError, match="clients of the SQL server"):
        sql_server.publish(spark, "w", Store.from_uri(tmp_path / "w"))
    (tmp_path / "both").write_text(f"{(tmp_path / 's').read_text()}{secrets.new_secret()}\n")
    secrets.use_secret(file=tmp_path / "both")
    warehouse.alter(None, tmp_path / "w", rotate_secret=True)
    with pytest.raises(Exception, match="rotated since the views were registered"):
        spark.table("w_events").count()
    shown = spark_sql._column

    def bare(name: str, options: Options, column: str) -> str:  # the broken variant: the tokens themselves
        return shown(name, replace(options, private=()), column)

    monkeypatch.setattr(spark_sql, "_column", bare)
    query.register_views(spark, tmp_path / "w", "w")
    found = spark.sql(f"SELECT count(*) FROM w_events WHERE CAST(user AS STRING) = '{NAMES[1]}'").collect()
    assert found == [(0,)]  # without a word
