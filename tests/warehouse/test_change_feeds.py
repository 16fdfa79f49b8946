"""Change feeds, of Delta and as JSON lines of Debezium: several changes of a row are one."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.query.groupworld import TINY, GroupWorld, Row
from tests.warehouse.corrections import NAMES, changed, create, numbered, rows, swap, table_of
from tests.warehouse.test_remove import check
from tidemark import warehouse
from tidemark.jobs.cli.main import main
from tidemark.warehouse import BatchMismatch, InputError

Change = tuple[str, Row]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    return create(tmp_path_factory.mktemp("made"))


@pytest.fixture
def world(made: GroupWorld, tmp_path: Path) -> GroupWorld:
    return made.copy(tmp_path)


def chain(world: GroupWorld) -> tuple[list[Change], list[Row], list[Row]]:
    """Changes, and what leaves and comes by them: updates twice, inserts that go, deletes that come back."""
    one, two, three, four = numbered(world, [3, 111, 205, 401])
    new, short = rows(8)[1], rows(8)[2]
    once, twice = changed(one), changed(changed(one))
    changes: list[Change] = [
        ("insert", new),
        ("update_preimage", one),
        ("update_postimage", once),
        ("insert", short),
        ("delete", two),
        ("update_preimage", once),
        ("update_postimage", twice),
        ("delete", short),
        ("delete", three),
        ("insert", three),
        ("update_preimage", four),
        ("update_postimage", changed(four)),
    ]
    return changes, [one, two, four], [new, twice, changed(four)]


def feed_of(changes: Iterable[Change]) -> pa.Table:
    """As Delta's change data feed gives it."""
    kinds, images = zip(*changes, strict=True)
    table = table_of(images).append_column("_change_type", pa.array(kinds, pa.string()))
    return table.append_column("_commit_version", pa.array(range(len(kinds)), pa.int64()))


def lines_of(changes: Iterable[Change], path: Path, *, wrapped: bool = False) -> Path:
    """As JSON lines of Debezium: an update is one change with both rows."""
    found: list[dict[str, Any]] = []
    for kind, row in changes:
        image = dict(zip(NAMES, row, strict=True))
        image["time"] = None if row[0] is None else row[0].isoformat()
        image["price"] = None if row[4] is None else float(row[4])
        image["value"] = "NaN" if isinstance(row[3], float) and math.isnan(row[3]) else row[3]
        if kind == "update_postimage":
            found[-1] |= {"op": "u", "after": image}
        elif kind == "insert":
            found.append({"op": "c", "before": None, "after": image, "ts_ms": 1})
        else:
            found.append({"op": "d", "before": image, "after": None})
    texts = (json.dumps({"payload": one, "schema": {}} if wrapped else one) for one in found)
    path.write_text("\n".join([*texts, "", ""]))
    return path


def correct(world: GroupWorld, changes: Any, **how: Any) -> warehouse.RemovalReport:
    return warehouse.correct(None, world.path, batch="feed", changes=changes, tuning=TINY, **how)


def test_a_feed_of_delta_is_netted(world: GroupWorld) -> None:
    changes, gone, came = chain(world)
    report = correct(world, feed_of(changes))
    assert (report.outcome, report.rows, report.rows_in) == ("corrected", 3, 3)
    swap(world, gone, came)
    check(world)
    assert correct(world, feed_of(reversed(changes))).outcome == "known"
    with pytest.raises(BatchMismatch, match="other rows"):
        correct(world, feed_of(changes[1:]))


def test_a_feed_of_debezium_is_netted(world: GroupWorld, tmp_path: Path) -> None:
    changes, gone, came = chain(world)
    assert correct(world, lines_of(changes, tmp_path / "feed.json", wrapped=True), dry_run=True).rows_in == 3
    correct(world, lines_of(changes, tmp_path / "feed.jsonl"))
    swap(world, gone, came)
    check(world)
    assert correct(world, feed_of(changes)).outcome == "known"
    given = ["correct", "-w", str(world.path), "--batch", "feed", "--changes", str(tmp_path / "feed.jsonl")]
    assert main([*given, "--engine", "local"]) == 0


def test_a_file_of_debezium_is_read_as_text_that_is_loaded(made: GroupWorld, tmp_path: Path) -> None:
    """Compressed, and with a byte order mark."""
    changes, _, _ = chain(made)
    text = lines_of(changes, tmp_path / "feed.json").read_bytes()
    (packed := tmp_path / "feed.json.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + text))
    assert correct(made, packed, dry_run=True).rows_in == 3


def test_a_feed_that_changes_nothing_is_empty(made: GroupWorld) -> None:
    assert correct(made, feed_of([("insert", rows(8)[1]), ("delete", rows(8)[1])])).outcome == "empty"


@pytest.mark.parametrize(
    ("feed", "error"),
    [
        (table_of(rows(0)), "a change feed has the columns time, origin"),
        (feed_of([("insert", rows(0)[0])]).drop_columns(["value"]), "a change feed has the columns"),
        (feed_of([("upsert", rows(0)[0])]), "_change_type must be one of insert.*got 'upsert'"),
        (feed_of([("delete", rows(8)[0])]), "are not in the warehouse"),
        ('{"op": "u", "before": null, "after": {}}', "has op 'u' without 'before'.*REPLICA IDENTITY FULL"),
        ('{"op": "d", "before": {"number": 3}, "after": null}', "'before' in line 1 of .* must have the col"),
        ('{"op": "x"}', "must be a JSON object with op c, r, u, d, got op 'x'"),
        ("[1]", "must be a JSON object with op c, r, u, d, got none of these: malformed: no object"),
        ("{", "must be a JSON object with op"),
        ('{"op": "d", "op": "c"}', "line 1 of .* got none of these: the field op is there twice"),
        ('\n{"op": "c", "after": {"value": NaN}}', "line 2 of .*: NaN is no number of JSON"),
        (b"\xff\xfe{\0", "the text is UTF-16, expected UTF-8"),
        (
            '{"op": "c", "after": {"time": null, "origin": "a", "number": "x", "value": 1, "price": null}}',
            "number of 'after' in line 1 of .* must be of type int64, got x",
        ),
    ],
)
def test_what_is_no_feed_changes_nothing(made: GroupWorld, tmp_path: Path, feed: Any, error: str) -> None:
    if isinstance(feed, str | bytes):
        (tmp_path / "feed.jsonl").write_bytes(feed.encode() if isinstance(feed, str) else feed)
        feed = tmp_path / "feed.jsonl"
    before = sorted(made.path.rglob("_delta_log/*.json"))
    with pytest.raises(InputError, match=error):
        correct(made, feed)
    with pytest.raises(InputError, match="correct takes rows with before"):
        correct(made, feed, on="number")
    assert sorted(made.path.rglob("_delta_log/*.json")) == before
