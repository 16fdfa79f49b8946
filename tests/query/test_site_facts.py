"""What an answer over several warehouses tells of each, the moment it is of, and rows that came twice."""

from __future__ import annotations

import json
import logging
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.said import tidemark
from tests.query.siteworld import DAY, FIRST, OPTIONS, SCHEMA, Sites, drawn, table
from tidemark import query, stream, warehouse
from tidemark.query.answers import by_site
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.snapshots import same_batches


def late(days: float) -> dict[str, Any]:
    return {"at": FIRST + days * DAY, "x": 1.0, "d": None, "k": "late", "g": "p"}


def _check_complete(pair: Sites) -> None:
    """A site that lags by more than the window, or has expired part of it, makes the answer incomplete."""
    pair.stream("site 1", [late(40)], 80)
    wh = pair.open()
    for answer in (wh.quantile(0.5, last="1d"), wh.frequency("late", last="1d"), wh.summary(last="1d")):
        lag = answer.by_site()
        assert (answer.complete, lag["site 0"].complete, lag["site 1"].complete) == (False, False, True)
        ends = [site.newest for site in lag.values() if site.newest]
        assert ends[0] <= FIRST + 10 * DAY < FIRST + 41 * DAY == ends[1]
        assert answer.scope_facts["complete"] is False
    for answer in (wh.quantile(0.5), wh.quantile(0.5, last="39d")):
        assert answer.complete is True
        assert all(site.expired_before is None for site in answer.by_site().values())
    assert query.open(pair.uris["site 0"]).quantile(0.5).complete is None

    horizon = FIRST + 5 * DAY
    for name in pair.rows:
        pair.load_live(name)
    warehouse.expire(None, pair.folder / "site 0", before=horizon)
    wh = pair.open()
    behind: dict[str, Any] = {"between": (FIRST, FIRST + 9 * DAY)}
    for answer in (wh.quantile(0.5, **behind), wh.distinct(**behind), wh.rank(7, where="x > 5", **behind)):
        told = answer.by_site()
        assert (answer.complete, told["site 0"].complete, told["site 1"].complete) == (False, False, True)
        assert (told["site 0"].expired_before, told["site 1"].expired_before) == (horizon, None)
    assert wh.quantile(0.5).by_site()["site 0"].expired_before == horizon
    assert wh.quantile(0.5, between=(horizon, FIRST + 9 * DAY)).complete is True


def test_an_answer_says_whether_each_site_has_all_of_the_window(pair: Sites) -> None:
    _check_complete(pair)


@pytest.mark.parametrize("left_out", ["expired", "reaches"])
def test_an_answer_that_is_always_complete_is_caught(
    pair: Sites, monkeypatch: pytest.MonkeyPatch, left_out: str
) -> None:
    right = by_site.SiteFacts

    def mistaken(**facts: Any) -> Any:
        expired = facts["expired_before"] is not None
        return right(**{**facts, "complete": facts["complete"] or expired == (left_out == "expired")})

    monkeypatch.setattr(by_site, "SiteFacts", mistaken)
    with pytest.raises(AssertionError):
        _check_complete(pair)


QUESTIONS: list[Callable[[query.Warehouse], Any]] = [
    lambda wh: wh.quantile([0.1, 0.9], mode="exact"),
    lambda wh: wh.quantile(0.5, "d", last="3d", by="g"),
    lambda wh: wh.frequency(["a", "b"], mode="exact"),
    lambda wh: wh.distinct(mode="exact"),
    lambda wh: wh.rank(7, where="x > 5"),
]


def told(answer: Any) -> dict[str, Any]:
    """All that an answer says, but for what was read to find it."""
    document = json.loads(answer.to_json())
    return {name: fact for name, fact in document.items() if name not in ("blocks_read", "rows_scanned")}


def test_the_moment_of_an_answer_gives_it_again(pair: Sites) -> None:
    """Also after loads, streams, merges and removals at each site."""
    chance = random.Random(5)
    wh = pair.open()
    answers = [ask(wh) for ask in QUESTIONS]
    for number, name in enumerate(pair.rows):
        pair.stream(name, drawn(chance, 50), 90)
        pair.load_live(name)
        pair.stream(name, drawn(chance, 30), 91 + number)
    warehouse.delete(None, pair.folder / "site 0", where="k = 'a'")
    for ask, answer in zip(QUESTIONS, answers, strict=True):
        one = answer[0] if isinstance(answer, query.Answers) else answer
        again = ask(query.open(pair.uris, at=one.moment))
        assert told(again) == told(answer)
        assert (again[0] if isinstance(again, query.Answers) else again).moment == one.moment
        assert told(ask(pair.open())) != told(answer)
    assert query.open(pair.uris["site 0"]).quantile(0.5).moment == {}


def test_moments_that_never_were_are_refused(pair: Sites) -> None:
    moment = pair.open().quantile(0.5).moment
    for at, told in (
        ({"site 0": moment["site 0"]}, "at has 'site 0'. Expected the versions of each warehouse"),
        ({**moment, "site 1": {"steps": 10**6}}, "the warehouse 'site 1': .* was never at 'steps' 1000000"),
        ({**moment, "site 1": {"runs/y": 0}}, "was never at 'runs/y' 0"),
        ({**moment, "site 1": {"steps": "new"}}, "the version of 'steps' must be a whole number"),
        ({**moment, "site 1": {}}, "at has no version of a table"),
        ({**moment, "site 1": {"steps": -1}}, "at has no version of a table"),
    ):
        with pytest.raises(InputError, match=told):
            query.open(pair.uris, at=at)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def came_twice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two warehouses, of which two batches of a stream and a load are the same; others have equal names."""
    folder, chance = tmp_path_factory.mktemp("twice"), random.Random(1)
    same, load = drawn(chance, 50), drawn(chance, 50)
    for name in "ab":
        warehouse.create(None, folder / name, ["x", "d"], schema=SCHEMA, **OPTIONS)
        warehouse.load(None, folder / name, table(load), "monday")
        warehouse.load(None, folder / name, table(drawn(chance, 50)), "tuesday")
        for batch, rows in enumerate((same, drawn(chance, 50), same, drawn(chance, 9))):
            stream.append(None, folder / name, table(rows), source="gate", batch=batch, ahead=None)
    stream.append(None, folder / "b", table(same), source="other", batch=0, ahead=None)
    return folder


@pytest.fixture
def twice(came_twice: Path, tmp_path: Path) -> dict[str, str]:
    """A copy of these, which a test may change."""
    return {name: str(shutil.copytree(came_twice / name, tmp_path / name)) for name in "ab"}


def _check_told(uris: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="tidemark.sites"):
        assert query.open(uris).quantile(0.5).N
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    for part in (
        "batch 0 of 'gate' (50 rows) in 'a' and 'b'",
        "batch 2 of 'gate'",
        "'load:monday' (50 rows)",
    ):
        assert part in told[0]
    assert "more" not in told[0]
    assert "tuesday" not in told[0]
    with pytest.raises(
        InputError, match="the same rows came to two warehouses, so they count twice: batch 0"
    ):
        query.open(uris, duplicates="refuse")


def test_rows_that_came_to_two_sites_are_named(
    twice: dict[str, str], caplog: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    _check_told(twice, caplog)
    asked = [part for name, uri in twice.items() for part in ("-w", f"{name}={uri}")]
    said = tidemark(capsys, "quantile", "0.5", *asked)
    assert (said.code, "the same rows came to two warehouses" in said.err) == (0, True)
    said = tidemark(capsys, "quantile", "0.5", *asked, "--duplicates", "refuse", "--missing", "bounds")
    assert (said.code, "'load:monday' (50 rows) in 'a' and 'b'" in said.err) == (2, True)
    with pytest.raises(InputError, match="duplicates must be one of 'warn', 'refuse', got 'drop'"):
        query.open(twice, duplicates="drop")  # type: ignore[arg-type]


def test_sites_without_equal_batches_are_not_warned_of(
    pair: Sites, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their sources have the same names, and no footer is read."""
    monkeypatch.setattr(same_batches, "open_sealed", pytest.fail)
    query.open(pair.uris, duplicates="refuse")
    assert not caplog.records


@pytest.mark.parametrize("mistake", ["by name alone", "without the digests", "nothing is the same"])
def test_mistakes_about_equal_batches_are_caught(
    twice: dict[str, str], caplog: Any, monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    if mistake == "by name alone":
        monkeypatch.setattr(same_batches, "_facts", lambda file: (file.rows, ()))
    if mistake != "nothing is the same":
        monkeypatch.setattr(same_batches, "_contents", lambda *_: [])
    else:
        monkeypatch.setattr(same_batches, "_contents", lambda store, _: [(store.uri,)])
    if mistake == "without the digests":  # batches that differ in the middle alone
        rows = [late(one) for one in (0, 2, 9)]
        for name, day in (("a", 2), ("b", 3)):
            rows[1]["at"] = FIRST + day * DAY
            stream.append(None, twice[name], table(rows), source="middle", batch=0, ahead=None)
        with pytest.raises(InputError, match="and 1 more"):
            query.open(twice, duplicates="refuse")
        monkeypatch.undo()
        with pytest.raises(InputError, match="gate") as told:
            query.open(twice, duplicates="refuse")
        assert "more" not in str(told.value)
        return
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        _check_told(twice, caplog)


def test_a_copy_is_the_same_warehouse_after_both_went_on(pair: Sites, tmp_path: Path) -> None:
    """It keeps the identity of its source."""
    warehouse.copy(pair.uris["site 0"], tmp_path / "copy")
    pair.stream("site 0", [late(3)], 70)
    stream.append(None, tmp_path / "copy", table([late(4)]), source="own", batch=0, ahead=None)
    with pytest.raises(InputError, match="or one is a copy of the other"):
        query.open({"source": pair.uris["site 0"], "copy": tmp_path / "copy"})
    shutil.rmtree(tmp_path / "copy")
