"""What tables have of private columns, and what errors say of them: small warehouses for one test each."""

from __future__ import annotations

import importlib
import io
import json
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.warehouse.private_world import (
    NAMES,
    SCHEMA,
    created,
    rows,
    secret_in,
    traces,
)
from tidemark import query, stream, warehouse
from tidemark.jobs.cli.main import main
from tidemark.query.scans import index_places
from tidemark.query.scans.index_places import IndexRates
from tidemark.warehouse import InputError
from tidemark.warehouse.ingest import private_rows, row_filter
from tidemark.warehouse.private import secrets
from tidemark.warehouse.text import records

pytestmark = pytest.mark.usefixtures("no_secrets")


def test_a_private_column_has_an_index_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_places, "RATES", IndexRates(row=1e9, group=1))
    created(tmp_path, index=[{"on": "user", "include": ["card", "id"]}, {"on": "id", "include": ["user"]}])
    warehouse.load(None, tmp_path / "w", rows(0, 90), "a")
    warehouse.delete(None, tmp_path / "w", where=f"user = '{NAMES[1]}'")
    wh = query.open(tmp_path / "w")
    expected = rows(0, 90).column("user").to_pylist().count(NAMES[2])
    for name, count in ((NAMES[1], 0), (NAMES[2], expected)):
        assert wh.sql("SELECT count(*) FROM events WHERE user = ?", params=[name]).fetchall() == [(count,)]
    given, one_of = rows(0, 90).to_pylist(), partial(query.token, fingerprint=wh.options.fingerprint)
    cards = {(str(one_of(row["card"])), row["id"]) for row in given if row["user"] == NAMES[2]}
    users = {
        (row["user"] and str(one_of(row["user"])), row["id"])
        for row in given[3:30]
        if row["user"] != NAMES[1]
    }
    both = query.connect({"w": wh})
    for ask, view in ((wh, "events"), (both, "w")):
        of_user, of_ids = f"FROM {view} WHERE user = '{NAMES[2]}'", f"FROM {view} WHERE id BETWEEN 3 AND 29"
        found = ask.sql(f"SELECT card, id {of_user}").fetchall()
        assert {(card["token"], place) for card, place in found} == cards
        found = ask.sql(f"SELECT user, id {of_ids}").fetchall()
        assert {(user and user["token"], place) for user, place in found} == users
        assert ask.explain(f"SELECT card, id {of_user}").parts[0].way == "index"
    with pytest.raises(InputError):
        wh.explain("SELECT id FROM events WHERE user > 'a'")
    assert traces(tmp_path / "w", []) == []


@pytest.mark.slow
def test_rows_that_come_back_have_the_tokens_that_they_had(tmp_path: Path) -> None:
    created(tmp_path)
    for day in range(2):
        warehouse.load(None, tmp_path / "w", rows(100 * day, 60, day), f"b{day}")
    before = {name: query.open(tmp_path / "w").frequency(name).count for name in NAMES}
    warehouse.delete(None, tmp_path / "w", where=f"user = '{NAMES[1]}'")
    warehouse.unload(None, tmp_path / "w", "b1")
    for removal in range(2):
        warehouse.restore(tmp_path / "w", removal=removal)
    wh = query.open(tmp_path / "w")
    assert {name: wh.frequency(name, mode="exact").count for name in NAMES} == before
    assert warehouse.verify(tmp_path / "w").ok


def changes_in(path: Path, *changes: Any) -> Path:
    """Changes as Debezium writes them: pairs of a row before and a row after."""
    ops = {(True, False): "c", (False, True): "d", (False, False): "u"}
    every = [
        {"op": ops[before is None, after is None], "before": before, "after": after}
        for before, after in changes
    ]
    path.write_text("\n".join(json.dumps(one, default=str, ensure_ascii=False) for one in every))
    return path


def test_changes_as_json_have_tokens(tmp_path: Path) -> None:
    uri = created(tmp_path)
    warehouse.load(None, uri, rows(0, 30), "a")
    (one, two), (new,) = rows(1, 2).to_pylist(), rows(50, 1).to_pylist()
    given = changes_in(tmp_path / "c.json", (one, {**one, "user": NAMES[6]}), (two, None), (None, new))
    assert warehouse.correct(None, uri, batch="fix", changes=given).rows_in == 2
    assert warehouse.correct(None, uri, batch="fix", changes=given).outcome == "known"
    left = Counter([*rows(0, 1)["user"].to_pylist(), *rows(3, 27)["user"].to_pylist(), NAMES[6], new["user"]])
    wh = query.open(uri)
    assert [wh.frequency(name, mode="exact").count for name in NAMES] == [left[name] for name in NAMES]
    assert wh.sql(f"SELECT id FROM events WHERE card = {new['card']} AND id = 50").fetchall() == [(50,)]
    assert traces(uri, []) == []


def errors_about_changes(folder: Path) -> list[str]:
    """What is said of records that are no changes."""
    uri, said = created(folder), list[str]()
    warehouse.load(None, uri, rows(0, 5), "a")
    one = rows(1, 1).to_pylist()[0]
    for number, wrong in enumerate(
        (
            {"op": "c", "after": {**one, "delay": NAMES[0]}},
            {"op": "c", "after": {NAMES[0]: 1}},
            {"op": NAMES[0]},
            {"op": "d", "before": {**one, "user": {"name": NAMES[0]}}},
            {"op": "d", "before": {**one, "id": 77}},
        )
    ):
        (folder / "c.json").write_text(json.dumps(wrong, default=str, ensure_ascii=False))
        with pytest.raises(InputError) as error:
            warehouse.correct(None, uri, batch=f"c{number}", changes=folder / "c.json")
        said.append(str(error.value))
    return said


def test_errors_about_changes_show_no_values(tmp_path: Path) -> None:
    assert not any(name in text for text in errors_about_changes(tmp_path) for name in NAMES)


def test_a_number_has_one_token_whatever_its_type() -> None:
    secret = secrets.Secret(bytes(range(32)))
    numbers = [pa.int8(), pa.int32(), pa.int64(), pa.uint64(), pa.decimal128(20, 0)]
    texts = [
        pa.string(),
        pa.large_string(),
        pa.binary(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
    ]
    kinds = [*numbers, *texts]
    given = pa.array(["5", None, "5"])
    made = {str(kind): private_rows.token_column(secret, _cast(given, kind)).to_pylist() for kind in kinds}
    assert len({tuple(one) for one in made.values()}) == 1
    five, nothing, again = made["int8"]
    assert (five, nothing, again) == (secret.token(b"5"), None, five)
    assert len(five) == 16
    assert private_rows.token_column(secret, pa.nulls(2)).to_pylist() == [None, None]


def _cast(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(kind) or pa.types.is_uint64(kind):
        return texts.cast(pa.int64()).cast(kind)
    return texts.dictionary_encode() if pa.types.is_dictionary(kind) else texts.cast(kind)


def test_a_secret_is_long_and_is_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_known", {})
    for text in (
        "",
        "00" * 32,
        "ab" * 16,
        "no secret at all, but a long line of text, longer than 64 letters",
    ):
        (tmp_path / "bad").write_text(text)
        with pytest.raises(InputError) as error:
            secrets.use_secret(file=tmp_path / "bad")
        assert not text or text not in str(error.value)
    text = secrets.new_secret()
    (tmp_path / "good").write_text(text)
    command = f"{sys.executable} -c \"print(open(r'{tmp_path / 'good'}').read())\""
    assert secrets.use_secret(command=command) == secrets.use_secret(file=tmp_path / "good")
    assert text not in repr(secrets._known)
    wrong: list[dict[str, Any]] = [{"command": " "}, {"command": ["cat"]}, {"file": "a\0b"}, {"file": 5}, {}]
    wrong += [{"command": "no-such-command-here"}, {"command": "false"}, {"file": tmp_path / "none"}]
    for bad in wrong:
        with pytest.raises(InputError):
            secrets.use_secret(**bad)


@pytest.mark.slow
def test_the_command_line_makes_secrets_and_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("alice\n"))

    def run(*words: str, given: str = "", **env: str) -> str:
        call = [sys.executable, "-m", "tidemark.jobs.cli.main", "secret", *words]
        done = subprocess.run(call, input=given, capture_output=True, text=True, env={**env}, check=True)
        return done.stdout.strip()

    run("new", "--to", str(tmp_path / "secret"))
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    assert main(["secret", "new", "--to", str(tmp_path / "secret")]) == 2  # a secret is never overwritten
    (tmp_path / "bad").write_text("no secret")
    with monkeypatch.context() as without:
        without.setenv("TIDEMARK_SECRET_FILE", str(tmp_path / "bad"))
        assert main(["secret", "token"]) == 2
    assert main(["secret", "new", "--to", str(tmp_path / "none" / "secret")]) == 2
    assert "has no secret" in capsys.readouterr().err
    made = run("token", given="alice\n", TIDEMARK_SECRET_FILE=str(tmp_path / "secret"))
    fingerprint = secrets.use_secret(file=tmp_path / "secret")
    assert made == str(query.token("alice", fingerprint))
    del secrets._known[fingerprint]


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        (["delay"], "delay"),
        (["time"], "time"),
        (["nothing"], "nothing"),
        (["id", "ID"], "each once"),
        (7, "True"),
    ],
)
def test_what_cannot_be_private_is_refused(tmp_path: Path, columns: Any, why: str) -> None:
    with pytest.raises(InputError, match=why):
        warehouse.create(
            None, tmp_path / "w", ["delay"], key="user", time="time", schema=SCHEMA, private=columns,
            secret_file=secret_in(tmp_path / "s"),
        )  # fmt: skip
    assert not (tmp_path / "w" / "events").exists()


def test_an_error_with_a_value_of_a_change_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records.TextColumns, "is_hidden", False)
    assert sum(NAMES[0] in text for text in errors_about_changes(tmp_path)) >= 3


def test_tokens_of_tokens_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    restored = importlib.import_module("tidemark.warehouse.restore")
    monkeypatch.setattr(restored._RemovedRows, "tokens_of", "")
    with pytest.raises(AssertionError):
        test_rows_that_come_back_have_the_tokens_that_they_had(tmp_path)


def test_values_that_are_written_as_they_came_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        private_rows, "token_column", lambda _, values: values.cast(pa.string()).cast(pa.binary())
    )
    warehouse.create(
        None, tmp_path / "w", ["delay"], key="user", time="time", schema=SCHEMA, private=True,
        secret_file=secret_in(tmp_path / "s"),
    )  # fmt: skip
    warehouse.load(None, tmp_path / "w", rows(0, 50), "a")
    assert traces(tmp_path / "w", [])


def test_a_reason_with_the_value_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_filter, "without_values", lambda record, **_: {**record, "raw": NAMES[0]})
    warehouse.create(
        None, tmp_path / "w", ["delay"], key="user", time="time", schema=SCHEMA, private=["user", "card"],
        secret_file=secret_in(tmp_path / "s"),
    )  # fmt: skip
    stream.append(None, tmp_path / "w", rows(0, 3, 40_000), source="s", batch=0)
    assert any(found.startswith("rejected") for found in traces(tmp_path / "w", []))
