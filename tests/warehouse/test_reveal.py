"""Values of private columns that can be revealed: by who has the secret, and by nobody else."""

from __future__ import annotations

import io
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.warehouse.private_world import CARDS, NAMES, SCHEMA, rows, secret_in, traces
from tidemark import query, warehouse
from tidemark.jobs.cli.main import main
from tidemark.stream.append import append_batch
from tidemark.warehouse import BatchMismatch, InputError
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.execution.executors import LocalExecutor
from tidemark.warehouse.ingest.row_filter import RowFilter
from tidemark.warehouse.private import secrets

REJECTED = json.dumps({"user": NAMES[0], "delay": "much"}, ensure_ascii=False)
GIVEN = rows(0, 60)


@pytest.fixture(autouse=True)
def no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that knows no secret but that of the test."""
    monkeypatch.setattr(secrets, "_read", {})
    monkeypatch.setattr(secrets, "_known", {})


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A load, and a batch of a stream of which a record was rejected."""
    secret_in(tmp_path / "secret")
    warehouse.create(
        None, tmp_path / "w", ["delay"], key="user", time="time", schema=SCHEMA, private=["user", "card"],
        index=["user"], secret_file=tmp_path / "secret", reveal=True,
    )  # fmt: skip
    warehouse.load(None, tmp_path / "w", GIVEN, "a")
    assert append(tmp_path / "w", REJECTED)
    return tmp_path / "w"


def append(uri: Path, rejected: str) -> Any:
    """A batch of records as a parser gives them, of which the last one cannot be taken."""
    given = rows(100, 5)
    raw: list[str | None] = [None] * 4
    described = {
        "_position": ["p"] * 5,
        "_raw": [*raw, rejected],
        "_reason": [*raw, f"no number: {rejected}"],
    }
    for name, values in described.items():
        given = given.append_column(name, pa.array(values, pa.string()))
    executor = LocalExecutor()
    return append_batch(
        executor,
        Store.from_uri(uri),
        executor.input(given),
        BatchRange("s", 0, 0),
        row_filter=RowFilter(None, True),
    )


def raw_of(uri: Path) -> list[Any]:
    """The texts in the table `rejected`."""
    store = Store.from_uri(uri)
    return [
        row["raw"]
        for row in data_files.read(store, "rejected", tables.open_table(store, "rejected")).to_pylist()
    ]


def names_of(uri: Path) -> dict[str, int]:
    """The keys with their rows, revealed."""
    return {query.reveal(one.value): one.count for one in query.open(uri).top(50, mode="exact")}


USERS = Counter(name for name in [*GIVEN["user"].to_pylist(), *rows(100, 4)["user"].to_pylist()] if name)


def test_who_has_the_secret_sees_names_in_lists(world: Path) -> None:
    assert names_of(world) == USERS
    wh = query.open(world)
    for name in NAMES:
        assert wh.frequency(name, mode="exact").count == USERS[name]
        assert wh.sql("SELECT count(*) FROM events WHERE user = ?", params=[name]).fetchall() == [
            (USERS[name],)
        ]
    found = wh.sql("SELECT user, card FROM events WHERE id = 3").fetchall()
    assert [query.reveal(one["token"]) for one in found[0]] == [NAMES[9 % 7], str(CARDS[3])]
    assert wh.frequency(query.token(NAMES[1], reveal=True), mode="exact").count == USERS[NAMES[1]]
    assert warehouse.load(None, world, GIVEN, "a").outcome == "known"
    warehouse.delete(None, world, where=f"user = '{NAMES[1]}'")
    assert names_of(world) == {name: count for name, count in USERS.items() if name != NAMES[1]}
    assert warehouse.verify(world).ok
    assert traces(world, []) == []


def test_a_rejected_record_is_sealed(world: Path) -> None:
    (sealed,) = raw_of(world)
    assert query.reveal(sealed) == REJECTED
    assert traces(world, []) == []
    assert not append(world, REJECTED)
    with pytest.raises(BatchMismatch):
        append(world, REJECTED.replace("much", "more"))
    warehouse.delete(None, world, where=f"user = '{NAMES[0]}'", purge=True)
    assert raw_of(world) == []  # nobody without the secret knows whether it had the name


def test_names_are_revealed_after_a_rotation(world: Path, tmp_path: Path) -> None:
    (sealed,) = raw_of(world)
    assert main(["secret", "new", "--after", str(tmp_path / "secret"), "--to", str(tmp_path / "two")]) == 0
    secrets.use_secret(file=tmp_path / "two")
    warehouse.alter(None, world, rotate_secret=True)
    assert names_of(world) == USERS
    assert str(query.open(world).top(1)[0].value).startswith("sealed2:")
    assert query.reveal(sealed) == REJECTED
    assert [query.reveal(one) for one in raw_of(world)] == [REJECTED]
    assert raw_of(world) != [sealed]
    assert not append(world, REJECTED)


def test_what_is_not_revealed(world: Path, tmp_path: Path) -> None:
    one = query.open(world).top(1)[0].value
    for wrong, why in (("Ann", "no token"), (query.token("Ann"), "the hash"), (f"{one}00", "another secret")):
        with pytest.raises(InputError, match=why):
            query.reveal(wrong)
    with pytest.raises(InputError, match="begins with token: was given"):
        query.open(world).frequency(query.token("Ann"))
    fingerprint = query.open(world).options.fingerprint
    secrets._known.clear()
    other = secrets.use_secret(file=secret_in(tmp_path / "other"))
    for of, why in ((None, "another secret"), (other, "another secret"), (fingerprint, "fingerprint")):
        with pytest.raises(InputError, match=why):
            query.reveal(one, of)
    assert len(query.open(world).top(50)) == len(USERS)  # lists need no secret


def test_it_is_declared_at_creation(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    how: dict[str, Any] = {
        "key": "user",
        "time": "time",
        "schema": SCHEMA,
        "secret_file": tmp_path / "secret",
    }
    with pytest.raises(InputError, match="none is named"):
        warehouse.create(None, tmp_path / "none", ["delay"], reveal=True, key="user")
    warehouse.create(None, world, ["delay"], **how, private=["user", "card"], reveal=True)  # it is so
    with pytest.raises(InputError, match="reveal=True"):
        warehouse.create(None, world, ["delay"], **how, private=["user", "card"])
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    secrets._cipher.cache_clear()
    with pytest.raises(InputError, match=r"tidemark\[reveal\]"):
        warehouse.create(None, tmp_path / "new", ["delay"], **how, private=True, reveal=True)
    assert not (tmp_path / "new").exists()


def test_the_command_line_reveals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDEMARK_SECRET_FILE", str(secret_in(tmp_path / "secret")))
    columns = [
        "--measure",
        "delay",
        "--key",
        "user",
        "--private",
        "user",
        "--schema",
        "user string, delay double",
    ]
    assert main(["create", "-w", str(tmp_path / "w"), *columns[:6], "--reveal"]) == 0
    assert query.open(tmp_path / "w").options.reveals
    capsys.readouterr()
    said = NAMES[0]
    for action in (["token", "--sealed"], ["reveal"]):
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{said}\n"))
        assert main(["secret", *action]) == 0
        said = capsys.readouterr().out.strip()
    assert said == NAMES[0]


# Mistakes that the tests above find.


def test_equal_values_that_are_sealed_in_two_ways_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, count = secrets.Secret.wrapped, [0]

    def wrapped(self: secrets.Secret, token: bytes) -> bytes:
        count[0] += 1
        return made(self, token) + bytes([count[0] % 2])

    monkeypatch.setattr(secrets.Secret, "wrapped", wrapped)
    warehouse.create(
        None, tmp_path / "w", ["delay"], key="user", time="time", schema=SCHEMA, private=True, reveal=True,
        secret_file=secret_in(tmp_path / "secret"),
    )  # fmt: skip
    for batch in range(2):
        warehouse.load(None, tmp_path / "w", rows(0, 30, batch), f"b{batch}")
    counts = {query.open(tmp_path / "w").frequency(NAMES[1], mode="exact").count for _ in range(2)}
    assert counts != {2 * rows(0, 30)["user"].to_pylist().count(NAMES[1])}


def test_a_record_that_is_not_sealed_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.warehouse.ingest.private_rows._RAW", "nothing")
    secret = secret_in(tmp_path / "again")
    warehouse.create(
        None, tmp_path / "v", ["delay"], key="user", time="time", schema=SCHEMA, private=["user", "card"],
        secret_file=secret, reveal=True,
    )  # fmt: skip
    append(tmp_path / "v", REJECTED)
    assert traces(tmp_path / "v", [])


def test_a_purge_that_looks_for_sealed_text_is_found(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.warehouse.settings.options.Options.reveals", False)
    warehouse.delete(None, world, where=f"user = '{NAMES[0]}'", purge=True)
    assert raw_of(world)
