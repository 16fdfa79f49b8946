"""The secret of private columns is rotated: answers by name stay, and no current file has an older token."""

from __future__ import annotations

import importlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.killing import Killed, killer
from tests.soak import HAS_ALL
from tests.warehouse.private_world import CARDS, NAMES, SCHEMA, has_bytes, rows, secret_in, traces
from tidemark import query, stream, warehouse
from tidemark.jobs.cli.main import main
from tidemark.query.scans import index_places
from tidemark.query.scans.index_places import IndexRates
from tidemark.warehouse import Contended, DamagedWarehouse, InputError, Tuning
from tidemark.warehouse.events import reader, removals
from tidemark.warehouse.ingest import private_rows
from tidemark.warehouse.private import secrets
from tidemark.warehouse.removals import finish

TINY = Tuning(group_rows=64, block_rows=32, file_rows=(64, 256), slice_rows=256, sort_rows=128)
GIVEN = {"b0": rows(0, 40), "b1": rows(100, 40, 1)}
LIVE = {0: rows(1000, 30, 5)}
LATE, LATER = rows(300, 40, 3), rows(1200, 20, 7)
GONE = NAMES[2]
FEW = NAMES if HAS_ALL else NAMES[:3]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two loads, a live batch, and rows that left; the folder has the file `secrets` of two secrets."""
    before = dict(secrets._known)
    secrets._known.clear()
    folder = tmp_path_factory.mktemp("made")
    secret = secret_in(folder / "secret")
    assert main(["secret", "new", "--after", str(secret), "--to", str(folder / "secrets")]) == 0
    assert main(["secret", "new", "--after", str(folder / "secrets"), "--to", str(folder / "three")]) == 0
    warehouse.create(
        None, folder / "w", ["delay"], keys=["user", ["card", "user"]], groups=["user"], time="time", kappa=2,
        index=[{"on": "id", "include": ["user"]}], grace="0 s", schema=SCHEMA,
        private=["user", "card"], secret_file=secret,
    )  # fmt: skip
    for name, given in GIVEN.items():
        warehouse.load(None, folder / "w", given, name, tuning=TINY)
    for number, given in LIVE.items():
        stream.append(None, folder / "w", given, source="s", batch=number, tuning=TINY)
    warehouse.delete(None, folder / "w", where=f"user = '{GONE}' AND id < 100", tuning=TINY)
    yield folder
    secrets._known.clear()
    secrets._known.update(before)


@pytest.fixture
def world(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, in a process that has both secrets."""
    monkeypatch.setattr(secrets, "_known", {})
    monkeypatch.setattr(secrets, "_read", {})
    secrets.use_secret(file=made / "secrets")
    return Path(shutil.copytree(made / "w", tmp_path / "w"))


def rotate(uri: Path, **how: Any) -> str:
    return warehouse.alter(None, uri, rotate_secret=True, tuning=TINY, **how).outcome


def left(*more: pa.Table, gone: int = 100) -> pa.Table:
    """The rows that the warehouse has."""
    every = pa.concat_tables([*GIVEN.values(), *LIVE.values(), *more])
    kept = [not (row["user"] == GONE and row["id"] < gone) for row in every.to_pylist()]
    return every.filter(pa.array(kept))


def check(uri: Path, *more: pa.Table, gone: int = 100, asked: Sequence[str] = FEW) -> None:
    """Each question by name counts what the rows have, and the tables are whole.

    asked: the names for which conditions and SQL are tried, too.
    """
    wh, expected = query.open(uri), left(*more, gone=gone)
    users, cards = Counter(expected["user"].to_pylist()), Counter(expected["card"].to_pylist())
    pairs = Counter(zip(expected["card"].to_pylist(), expected["user"].to_pylist(), strict=True))
    for name in NAMES:
        assert wh.frequency(name, mode="exact").count == users[name]
    for name in asked:
        assert wh.sql("SELECT count(*) FROM events WHERE user = ?", params=[name]).fetchall() == [
            (users[name],)
        ]
        for where in ({"user": name}, f"user = '{name}' AND id >= 0") if users[name] else ():
            assert users[name] == wh.quantile(0.5, where=where, mode="exact").N
    for card in CARDS[: len(asked)]:
        assert wh.sql(f"SELECT count(*) FROM events WHERE card = {card}").fetchall() == [(cards[card],)]
    for pair in [*pairs][:3]:
        assert wh.frequency(pair, key=["card", "user"], mode="exact").count == pairs[pair]
    assert wh.distinct(mode="exact").count == len(users) - (None in users)
    found = wh.sql("SELECT user FROM events WHERE id BETWEEN 3 AND 9").fetchall()
    token_of = {name: str(query.token(name, wh.options.fingerprint)) for name in NAMES}
    assert Counter(user and user["token"] for (user,) in found) == Counter(
        token_of.get(row["user"]) for row in expected.to_pylist() if 3 <= row["id"] <= 9
    )
    report = warehouse.verify(uri)
    assert report.ok, [one for one in report.checks if not one.ok]


def older_tokens(uri: Path) -> list[str]:
    """The files that have a token of the first secret."""
    first = next(one for one in secrets._known.values() if one.older is None)
    values = [*NAMES, *map(str, CARDS)]
    return has_bytes(uri, [form for one in values for form in _forms(first.token(one.encode()))])


def _forms(token: bytes) -> list[bytes]:
    return [token, token.hex().encode()]


def replay(uri: Path) -> None:
    """Batches that come again are known, also those that lost rows."""
    for name, given in GIVEN.items():
        assert warehouse.load(None, uri, given, name, tuning=TINY).outcome == "known"
    for number, given in LIVE.items():
        assert not stream.append(None, uri, given, source="s", batch=number, tuning=TINY)


def test_answers_by_name_stay_and_no_file_has_an_older_token(
    world: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_places, "RATES", IndexRates(row=1e9, group=1))  # the world is small
    reader_of_before = query.open(world)
    count = reader_of_before.frequency(NAMES[1]).count
    kept = str(reader_of_before.top(1)[0].value)
    assert older_tokens(world)
    assert rotate(world) == "loaded"
    check(world, asked=NAMES)
    replay(world)
    assert reader_of_before.frequency(NAMES[1]).count == count
    assert rotate(world) == "known"
    warehouse.load(None, world, LATE, "late", tuning=TINY)
    check(world, LATE)
    warehouse.maintain(None, world)
    assert older_tokens(world) == traces(world, []) == []
    token = str(query.open(world).top(1)[0].value)
    assert token.startswith("token2:")
    assert query.open(world).frequency(token).count
    with pytest.raises(InputError, match="the secret was rotated"):
        query.open(world).frequency(kept)
    with pytest.raises(InputError, match=r"begins with token: was given, and those .* begin with token2: "):
        query.open(world).quantile(0.5, where=f"user = '{kept}'")
    secrets._known.clear()
    secrets.use_secret(file=made / "three")
    assert rotate(world) == "loaded"
    check(world, LATE)


def test_who_has_the_older_secret_alone_is_refused(world: Path, made: Path) -> None:
    rotate(world)
    both = dict(secrets._known)
    secrets._known.clear()
    secrets.use_secret(file=made / "secret")
    before = sorted(world.rglob("*"))
    calls: list[Callable[[], Any]] = [
        lambda: query.open(world).frequency(NAMES[0]),
        lambda: warehouse.load(None, world, rows(300, 3), "new"),
        lambda: stream.append(None, world, rows(300, 3), source="t", batch=0),
        lambda: rotate(world),
    ]
    for call in calls:
        with pytest.raises(InputError, match="rotated"):
            call()
    secrets._known.clear()
    for other in (secret_in(made / "other"), made / "w"):  # and one that wraps no other
        if other.is_file():
            secrets.use_secret(file=other)
        with pytest.raises(InputError, match="fingerprint"):
            rotate(world)
    assert sorted(world.rglob("*")) == before
    secrets._known.update(both)


POINTS = ["declared", "rewritten", "rotated", "committed"]


@pytest.mark.parametrize("point", POINTS)
def test_a_call_that_is_killed_is_called_again(point: str, world: Path) -> None:
    with pytest.raises(Killed):
        rotate(world, progress=killer(point))
    if point == "rewritten":
        check(world)  # with the older tokens
    if point == "rotated":
        warehouse.load(None, world, LATE, "late", tuning=TINY)  # it finishes what the kill left
        check(world, LATE)
    else:
        rotate(world)
        check(world)
    replay(world)


def test_a_statement_that_was_made_before_is_refused(world: Path) -> None:
    wh = query.open(world)
    held = [wh.sql(f"SELECT count(user) FROM {part}") for part in ("events", "live", "history")]
    before = [one.fetchall() for one in held]
    rotate(world)
    for one in held:
        with pytest.raises(InputError, match=r"'user' was changed .* Do that again"):
            one.fetchall()
    assert wh.sql("SELECT count(user) FROM events").fetchall() == before[0]


@pytest.mark.usefixtures("world")
def test_a_moment_before_has_its_rows_and_columns(made: Path, tmp_path: Path) -> None:
    secrets._known.clear()
    uri = tmp_path / "kept"
    warehouse.create(None, uri, "delay", key="user", private=True, secret_file=made / "secret", schema=SCHEMA)
    warehouse.load(None, uri, GIVEN["b0"], "b0", tuning=TINY)
    columns = query.open(uri).sql("FROM events").columns
    secrets.use_secret(file=made / "secrets")
    rotate(uri)
    then, name = query.open(uri, at=0), NAMES[0]
    assert then.sql("FROM events").columns == columns
    count = GIVEN["b0"]["user"].to_pylist().count(name)
    assert then.sql("SELECT count(*) FROM events WHERE user = ?", params=[name]).fetchall() == [(count,)]
    assert then.frequency(name, mode="exact").count == count


def test_others_write_meanwhile(world: Path) -> None:
    """A load, a batch of a stream, and rows that leave, at two points."""
    done = Counter[str]()

    def meanwhile(reached: str) -> None:
        done[reached] += 1
        if (reached, done[reached]) == ("declared", 1):
            warehouse.load(None, world, LATE, "late", tuning=TINY)
        if (reached, done[reached]) == ("rewritten", 1):
            stream.append(None, world, LATER, source="s", batch=1, tuning=TINY)
            warehouse.delete(None, world, where=f"user = '{GONE}' AND id < 1005", tuning=TINY)

    rotate(world, progress=meanwhile)
    assert done["rewritten"] == 2
    check(world, LATE, LATER, gone=1005)
    replay(world)
    warehouse.maintain(None, world)
    assert older_tokens(world) == []


def rotates_before(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, world: Path) -> None:
    """The secret is rotated right before the function is called for the first time."""
    function, is_first = getattr(module, name), [True]

    def called(*given: Any, **named: Any) -> Any:
        if is_first.pop() if is_first else False:
            rotate(world)
        return function(*given, **named)

    monkeypatch.setattr(module, name, called)


@pytest.mark.parametrize(
    "write",
    [
        lambda uri: warehouse.load(None, uri, LATE, "late", tuning=TINY),
        lambda uri: stream.append(None, uri, LATE, source="s", batch=1, tuning=TINY),
    ],
    ids=["load", "append"],
)
def test_a_batch_of_older_tokens_is_refused(
    write: Callable[[Path], Any], world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_rows = importlib.import_module("tidemark.warehouse.ingest.append_rows")
    rotates_before(monkeypatch, append_rows, "commit", world)
    with pytest.raises(Contended, match="rotated"):
        write(world)
    check(world)
    write(world)
    check(world, LATE)


def inserts(uri: Path) -> Any:
    changes = LATE.append_column("_change_type", pa.array(["insert"] * LATE.num_rows))
    return warehouse.correct(None, uri, batch="fix", changes=changes, tuning=TINY)


def rotates_before_a_plan(world: Path, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second time, so that no digest is to be forgotten, and the plan of the removal loses no race."""
    rotate(world)
    secrets.use_secret(file=made / "three")
    rotates_before(monkeypatch, removals, "commit_removal", world)


def test_a_correction_of_older_tokens_is_void(
    world: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as during:
        rotates_before_a_plan(world, made, during)
        with pytest.raises(Contended, match="rotated"):
            inserts(world)
    check(world)
    inserts(world)
    check(world, LATE)


def test_rows_that_left_before_are_not_restored(world: Path) -> None:
    rotate(world)
    with pytest.raises(InputError, match="rotated since"):
        warehouse.restore(world, removal=0, tuning=TINY)
    check(world)


def test_the_command_rotates(world: Path, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets._known.clear()
    monkeypatch.setenv("TIDEMARK_SECRET_FILE", str(made / "secrets"))
    assert main(["alter", "-w", str(world), "--rotate-secret", "--engine", "local"]) == 0
    check(world)


def test_what_has_no_secret_to_rotate_is_refused(tmp_path: Path, world: Path) -> None:
    warehouse.create(None, tmp_path / "plain", ["delay"], key="user", schema=SCHEMA)
    with pytest.raises(InputError, match="no private columns"):
        rotate(tmp_path / "plain")
    with pytest.raises(InputError, match="rotate_secret goes alone"):
        rotate(world, kappa=3)


# Mistakes that the tests above find.


def test_tokens_that_are_not_wrapped_are_found(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_rows.WrappedTokens, "_wrapped", lambda _, tokens: tokens)
    rotate(world)
    with pytest.raises(AssertionError):
        check(world)


def test_digests_of_older_tokens_are_found(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rotation = importlib.import_module("tidemark.warehouse.rotate")
    monkeypatch.setattr(rotation, "forget_digests", lambda *_: None)
    rotate(world)
    with pytest.raises(warehouse.BatchMismatch):
        replay(world)


def test_a_batch_that_keeps_older_tokens_is_found(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append_rows = importlib.import_module("tidemark.warehouse.ingest.append_rows")
    monkeypatch.setattr(append_rows, "check_current", lambda *_: None)
    rotates_before(monkeypatch, append_rows, "commit", world)
    warehouse.load(None, world, LATE, "late", tuning=TINY)
    with pytest.raises(AssertionError):
        check(world, LATE)


def test_a_correction_that_keeps_older_tokens_is_found(
    world: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finish, "_fit", lambda *_: True)
    rotates_before_a_plan(world, made, monkeypatch)
    with pytest.raises(DamagedWarehouse, match="lacks the private column"):
        inserts(world)


def test_a_file_of_before_is_not_read_as_one_of_after(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that looks for files after it looked for options asks again."""
    wh = query.open(world)
    assert wh.frequency(NAMES[1], where="id >= 0").count
    rotate(world)
    snapshot: Any = wh._session.snapshot
    tables = snapshot._tables
    monkeypatch.setattr(tables, "look_for_options", lambda *_: None)  # it saw none since
    with pytest.raises(DamagedWarehouse, match="rotated"):
        wh.frequency(NAMES[1], where="id >= 0")
    whole = reader.read_columns
    monkeypatch.setattr(reader, "read_columns", lambda file, group, names, *_: whole(file, group, names))
    assert wh.frequency(NAMES[1], where="id >= 0").count == 0  # the mistake, without a word
