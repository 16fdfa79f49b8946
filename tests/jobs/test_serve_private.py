"""The server and private columns: tokens in bodies are answered, and no value of a request is seen again."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.jobs.http_served import Site, serving
from tests.warehouse.private_world import secret_in
from tidemark import query, warehouse
from tidemark.jobs.cli.main import main
from tidemark.jobs.serve import private_questions, questions
from tidemark.query.integrations import cursors
from tidemark.warehouse.private import secrets

NAMES = ["Zoë Ostrowski", "Bree Vandermeer"]
CARDS = [4_929_000_111_222_333, 4_929_000_111_222_340]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two warehouses with the same rows; the columns of one are private."""
    made, known = tmp_path_factory.mktemp("served"), dict(secrets._known)
    secrets._known.clear()
    rows = pa.table({
        "user": [NAMES[i % 3 == 0] for i in range(90)], "card": [CARDS[i % 2] for i in range(90)],
        "ms": [i * 0.5 for i in range(90)],
    })  # fmt: skip
    for name, private in (("private", True), ("plain", None)):
        secret = secret_in(made / "secret") if private else None
        warehouse.create(
            None, made / name, "ms", keys=["user", "card"], groups=["user"], private=private,
            secret_file=secret, schema=rows.schema,
        )  # fmt: skip
        warehouse.load(None, made / name, rows, "a")
    yield made
    secrets._known.clear()
    secrets._known.update(known)


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[Site]:
    with serving({name: query.open(folder / name) for name in ("private", "plain")}) as found:
        yield found


def tokens(value: Any) -> Any:
    """A value with tokens in the place of names, as JSON."""
    if isinstance(value, dict):
        return {name: tokens(one) for name, one in value.items()}
    if isinstance(value, list):
        return [tokens(one) for one in value]
    return str(query.token(value)) if value in [*NAMES, *CARDS] else value


ASKED: list[tuple[str, dict[str, Any]]] = [
    ("frequency", {"value": NAMES, "key": "user"}),
    ("frequency", {"value": CARDS[0], "key": "card", "mode": "exact"}),
    ("persistence", {"value": NAMES[0], "key": "user"}),
    ("quantile", {"phi": 0.5, "where": {"user": NAMES[0]}}),
    ("quantile", {"phi": 0.5, "where": {"user": NAMES, "card": CARDS[1]}, "mode": "exact"}),
    ("quantile", {"phi": 0.5, "by": "user", "groups": [NAMES[1]]}),
]


@pytest.mark.parametrize(("name", "body"), ASKED)
def test_tokens_are_answered_as_names_are_of_the_twin(name: str, body: dict[str, Any], site: Site) -> None:
    private = site.post(f"/{name}", {**tokens(body), "warehouse": "private"})
    plain = site.post(f"/{name}", {**body, "warehouse": "plain"})
    assert (private.status, plain.status) == (200, 200), private.text
    facts = [
        [(one.get("count"), one.get("value") if name == "quantile" else None, one.get("low"), one.get("high"))
         for one in reply.json["answers"]]
        for reply in (private, plain)
    ]  # fmt: skip
    assert facts[0] == facts[1]
    assert not any(str(one) in private.text for one in [*NAMES, *CARDS])


def test_a_condition_in_sql_has_tokens(site: Site) -> None:
    token = query.token(NAMES[0])
    private, plain = (
        site.post("/quantile", {"phi": 0.5, "where": f"user = '{one}' AND ms > 3", "warehouse": name})
        for name, one in (("private", token), ("plain", NAMES[0]))
    )
    assert (private.status, plain.status) == (200, 200), private.text
    assert private.json["answers"][0]["value"] == plain.json["answers"][0]["value"]


NAME, CARD = NAMES[0], CARDS[0]
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("frequency", {"value": NAME, "key": "user"}),
    ("frequency", {"value": CARD, "key": "card"}),
    ("frequency", {"value": [[NAME, CARD]], "key": "user"}),
    ("frequency", {"value": NAME, "key": NAME}),
    ("persistence", {"value": [NAME], "key": "user", "slot": NAME}),
    ("key_range", {"low": NAME, "high": NAME, "key": "user"}),
    ("quantile", {"phi": 0.5, "where": {"user": NAME}}),
    ("quantile", {"phi": 0.5, "where": f"user = '{NAME}'"}),
    ("quantile", {"phi": 0.5, "where": f"card = {CARD}"}),
    ("quantile", {"phi": 0.5, "where": f"user LIKE '{NAME}%'"}),
    ("quantile", {"phi": 0.5, "where": f"{NAME}"}),
    ("quantile", {"phi": 0.5, "measure": f"CASE WHEN user = '{NAME}' THEN ms END"}),
    ("quantile", {"phi": 0.5, "by": f"user = '{NAME}'"}),
    ("quantile", {"phi": 0.5, "by": "user", "groups": [NAME]}),
    ("quantile", {"phi": [NAME], "where": {"user": NAME}}),
    ("quantile", {"phi": NAME}),
    ("top", {"k": NAME, "key": "user"}),
    ("inner_product", {"other": "plain", "key": "user", "value": NAME}),
]


@pytest.mark.parametrize(("name", "body"), REFUSED)
def test_names_are_refused_and_never_shown(
    name: str, body: dict[str, Any], site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        reply = site.post(f"/{name}", {**body, "warehouse": "private"})
    assert reply.status in {400, 422}, reply.text
    seen = reply.text + json.dumps(reply.json, ensure_ascii=False) + caplog.text + str(reply.headers)
    assert not any(one in seen for one in (NAME, str(CARD), NAME.split()[1], json.dumps(NAME)))


def test_a_condition_that_is_known_by_name_is_still_refused(site: Site, folder: Path) -> None:
    where = f"user = '{NAME}'"
    assert query.open(folder / "private").quantile(0.5, where=where).n
    reply = site.post("/quantile", {"phi": 0.5, "where": where, "warehouse": "private"})
    assert (reply.status, "token" in reply.json["message"]) == (400, True)


@pytest.mark.parametrize(
    "address",
    [
        "frequency?key=user&value={}",
        "quantile?phi=0.5&where=user={}",
        "quantile?phi=0.5&by=user&groups={}",
        "key_range?key=user&low={}",
        "quantile?phi=0.5&where=ms%20%3E%203",
        "quantile?phi=0.5&measure=ms%2B1",
    ],
)
def test_no_value_of_a_column_is_taken_in_an_address(address: str, site: Site) -> None:
    token = query.token(NAME)
    reply = site.get(f"/{address.format(token)}&warehouse=private")
    assert (reply.status, "POST" in reply.json["message"]) == (400, True)
    assert str(token) not in reply.text


def test_bodies_that_cannot_be_read_are_not_shown(site: Site) -> None:
    for body in (
        f'{{"value": "{NAME}", "warehouse": '.encode(),
        json.dumps([NAME]).encode(),
        json.dumps({"phi": 0.5, "form": NAME}).encode(),
        json.dumps({"phi": {"a": NAME}}).encode(),
        f'{{"phi": {CARD}{"0" * 500}}}'.encode(),
    ):
        reply = site.post("/quantile", body)
        assert reply.status == 400
        assert not any(one in reply.text for one in (NAME, str(CARD), json.dumps(NAME)[1:-1]))
    assert site.get(f"/quantile?phi=0.5&form={CARD}").json["message"] == private_questions.NOT_READ


def test_what_needs_no_value_is_answered_in_an_address(site: Site) -> None:
    for address in ("top?key=user", "quantile?phi=0.5&by=user", "distinct?key=card", "info", "span"):
        reply = site.get(f"/{address}{'&' if '?' in address else '?'}warehouse=private")
        assert reply.status == 200, reply.text
        assert not any(str(one) in reply.text for one in [*NAMES, *CARDS])
    assert "tidemark_up" in site.get("/metrics").text


def test_an_unexpected_error_is_logged_without_its_text(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any) -> str:
        raise KeyError(NAME)

    monkeypatch.setattr(questions, "answer", fails)
    with caplog.at_level(logging.DEBUG):
        reply = site.post("/top", {"key": "user", "warehouse": "private"})
    assert reply.status == 500
    assert "KeyError" in caplog.text
    assert NAME not in caplog.text


def test_assistants_are_refused_and_tools_of_sqlalchemy_replace_names(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mcp", "-w", f"p={folder / 'private'}"]) == 2
    assert "private columns" in capsys.readouterr().err
    statement = f"SELECT count(*) FROM p WHERE CAST(user AS VARCHAR) = '{NAME}'"
    cursor = cursors.Connection({"p": query.open(folder / "private")}).cursor()
    with pytest.raises(query.InputError, match="private column"):
        cursor.execute(statement)
    cursor.execute("SELECT count(*) FROM p WHERE user = ?", [NAME])
    assert cursor.fetchall() == [(query.open(folder / "plain").frequency(NAME, key="user").count,)]


# Mistakes that the tests above find.


def test_a_server_that_takes_names_is_found(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.warehouse.private.tokens.asking_secret", secrets.secret_of)
    assert site.post("/frequency", {"value": NAME, "key": "user", "warehouse": "private"}).status == 200


def test_a_server_that_shows_values_is_found(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_questions, "without_values", lambda text, _: text)
    shown = [site.post(f"/{name}", {**body, "warehouse": "private"}).text for name, body in REFUSED]
    assert any(NAME in text or json.dumps(NAME)[1:-1] in text for text in shown)
