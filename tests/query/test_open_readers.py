"""After any change of a warehouse each open reader answers the next question as a new reader would.

The oracle is a reader that is opened after the change. Each form of question is asked of a reader of its own
that was opened before, so that no earlier question has looked for the change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.query.groupworld import TINY, GroupWorld, group_of
from tests.query.keyoracle import check_key
from tests.query.tally import Tally
from tests.warehouse.test_alter import rows as rows_of_world
from tidemark import query, stream, warehouse
from tidemark.query import reader
from tidemark.query.asking import ask as asking
from tidemark.query.asking import key_reader
from tidemark.query.asking.session import Session
from tidemark.warehouse.companions import kinds
from tidemark.warehouse.delta.metadata_watch import MetadataWatch
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.snapshots import snapshot

ROWS = pa.table({"v": [1.0, 2.0, 4.0], "k": [10, 20, 10], "Maß.é>": ["x", "y", None], "c": ["p", "q", "p"]})
NAME = "Maß.é>"


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    warehouse.register_companion(Tally())
    yield
    kinds._REGISTERED.pop("tally", None)


Question = Callable[[query.Warehouse], Any]
QUESTIONS: dict[str, Question] = {
    "plain": lambda wh: wh.quantile(0.5),
    "where": lambda wh: wh.rank(2.0, where={"c": "p"}),
    "where in text": lambda wh: wh.quantile(0.5, where="v > 1"),
    "by": lambda wh: wh.cdf(2.0, by="c"),
    "by, where": lambda wh: wh.quantile(0.5, by="c", where={NAME: ["x", "y"]}),
    "by, top": lambda wh: wh.quantile(0.5, by=NAME, top=1, mode="exact"),
    "by, groups": lambda wh: wh.histogram(2, by="c", groups=["p"]),
    "key": lambda wh: wh.top(5),
    "added key": lambda wh: wh.frequency("x", key=NAME),
    "several columns": lambda wh: wh.frequency((10, "p"), key=["k", "c"]),
    "several, exact": lambda wh: wh.self_join(key=["c", "k"], mode="exact"),
    "distinct": lambda wh: wh.distinct(key="c"),
    "persistence": lambda wh: wh.persistence("p", key="c"),
    "persistent": lambda wh: wh.persistent(1, key=NAME),
    "new keys": lambda wh: wh.new_keys(key="c", between=(0, 9)),
    "overlap": lambda wh: wh.overlap((0, 9), None, key="c"),
    "inner product": lambda wh: wh.inner_product(wh, key="c"),
    "companion": lambda wh: wh.companion("users"),
    "span": lambda wh: wh.span(),
    "pinned": lambda wh: wh.pinned().top(1, key=NAME),
    "refresh": lambda wh: (wh.refresh(), wh.quantile(0.5, by="c"))[1],
    "keys": lambda wh: (wh.key, wh.keys, wh.measures, dict(wh.options.columns)),
    "contents": lambda wh: (sorted(wh.contents().batches()), wh.contents().columns),
    "info": lambda wh: {**wh.info(), "memory": None, "versions": sorted(wh.info()["versions"].items())},
    "sql": lambda wh: wh.sql("FROM quantile(0.5, by := 'c')").fetchall(),
    "sql, key": lambda wh: wh.sql(f"FROM top(2, key := '{NAME}')").fetchall(),
}


def said(ask: Question, wh: query.Warehouse) -> str:
    """What a reader answers, with everything that the answer says; or its error."""
    try:
        answer = ask(wh)
    except Exception as error:  # noqa: BLE001  whatever it is
        return f"{type(error).__name__}: {error}"
    facts = [getattr(one, "rows_scanned", None) for one in (answer if isinstance(answer, list) else [answer])]
    return f"{answer!r} {facts} {getattr(answer, 'as_of', None)}"


def differ(path: Path, change: Callable[[], object]) -> dict[str, list[str]]:
    """What open readers answer after a change, and a new one, where these differ."""
    before = {name: query.open(path) for name in QUESTIONS}
    said(QUESTIONS["sql"], before["sql, key"])  # its connection is from before
    change()
    answers = {
        name: [said(ask, before[name]), said(ask, query.open(path))] for name, ask in QUESTIONS.items()
    }
    return {name: both for name, both in answers.items() if both[0] != both[1]}


CHANGES: dict[str, Callable[[Any], object]] = {
    "load": lambda path: warehouse.load(None, path, ROWS, "a"),
    "append": lambda path: stream.append(None, path, ROWS, source="s", batch=0),
    "add a key": lambda path: warehouse.alter(None, path, add_key=NAME),
    "add a group": lambda path: warehouse.alter(None, path, add_group="c"),
    "move": lambda path: warehouse.load(None, path),
    "add more": lambda path: warehouse.alter(None, path, add_key=["k", "c"], add_group=["c", NAME]),
}


@pytest.mark.parametrize("changes", [["load"], ["append", "add a key", "add a group", "move", "add more"]])
def test_open_readers_answer_as_new_ones_after_each_change(tmp_path: Path, changes: list[str]) -> None:
    path = tmp_path / "w"  # the first batch fixes the columns
    warehouse.create(None, path, "v", key="k", companions={"users": ("tally", "c")})
    for name in changes:
        assert differ(path, partial(CHANGES[name], path)) == {}, name
    refused = [said(ask, query.open(path)).startswith("InputError") for ask in QUESTIONS.values()]
    assert changes == ["load"] or not any(refused)


def ask_once(session: Session, request: Any) -> Any:
    plan = request.plan(session)
    view, _ = asking._look(session, plan)
    return asking._answer(plan, view)


@pytest.mark.parametrize("broken", ["watch", "understood"])
def test_readers_that_do_not_look_for_options_are_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """The broken variants: new options are not looked for; or they are, after the question was understood."""
    if broken == "watch":
        monkeypatch.setattr(MetadataWatch, "may_have_changed", lambda _: False)
    else:
        for module in (reader, key_reader):
            monkeypatch.setattr(module, "ask", ask_once)
    path = tmp_path / "w"
    warehouse.create(None, path, "v", key="k", schema=ROWS.schema)
    CHANGES["load"](path)
    expected = {"by", "distinct"} if broken == "watch" else {"by"}  # answers know the newest options
    assert expected <= differ(path, partial(CHANGES["add a group"], path)).keys()


def test_commits_that_were_cleaned_and_a_watch_that_waits(tmp_path: Path, monkeypatch: Any) -> None:
    """A reader whose next commit is gone finds the options when it looks anew."""
    path = tmp_path / "w"
    warehouse.create(None, path, "v", key="k", schema=ROWS.schema)
    wh = query.open(path)
    stream.append(None, path, ROWS, source="s", batch=0)
    warehouse.alter(None, path, add_key="c")
    monkeypatch.setattr(MetadataWatch, "_next_commit", lambda _: None)
    with pytest.raises(warehouse.InputError, match="no key c here"):
        wh.top(1, key="c")
    monkeypatch.setattr("tidemark.warehouse.delta.metadata_watch.LISTING_SECONDS", -1.0)
    assert wh.top(1, key="c")[0].value == "p"


def test_a_reader_may_be_told_to_stay_old(tmp_path: Path) -> None:
    path = tmp_path / "w"
    warehouse.create(None, path, "v", key="k", schema=ROWS.schema)
    wh = query.open(path, max_staleness="1 hour")
    CHANGES["load"](path)
    warehouse.alter(None, path, add_key="c")
    with pytest.raises(warehouse.InputError, match="no key c here"):
        wh.top(1, key="c")
    assert wh.refresh()
    assert wh.top(1, key="c")[0].value == "p"


@pytest.mark.parametrize("is_broken", [False, True])
def test_rows_that_came_before_their_key_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    """Every question about the key agrees with a plain count. The broken variant leaves the rows out."""
    if is_broken:
        monkeypatch.setattr(snapshot, "late_keys", lambda *_: [])
    made = GroupWorld.create(tmp_path, groups=None, key_eps=0.05)
    for number in range(8):  # the batches 3, 4, 5 are a range of their own, and so are 6, 7
        made.add(rows_of_world(number), load=number < 2)
    warehouse.alter(None, made.path, add_key=["number", "origin"], tuning=TINY)
    warehouse.alter(None, made.path, add_group="origin", tuning=TINY)
    made.add(rows_of_world(8), load=False)
    try:
        for key in ("origin", ["number", "origin"]):
            check_key(made, key, None)
        wh, fresh = made.open(), made.open().pinned()
        assert repr(wh.distinct(key="origin")) == repr(fresh.distinct(key="origin"))
        assert {group_of(one)["origin"]: one.N for one in wh.quantile(0.5, "value", by="origin")} == {
            name: made.truth("value", {"origin": name}, None).n for name in ("a", "b", "é")
        }
    except (AssertionError, DamagedWarehouse):
        assert is_broken
    else:
        assert not is_broken
