"""Prefixes of keys: against a count of the prefixes of every row, for text, dates and times."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from tidemark import query, stream, warehouse
from tidemark.query.keys import hierarchy, key_scan, prefix_ranges
from tidemark.query.keys.prefix_spans import text_spans
from tidemark.warehouse import InputError
from tidemark.warehouse.sizes import Tuning

START, HOUR = datetime(2024, 2, 28, tzinfo=UTC), timedelta(hours=1)
ROWS = 900
LATER = timedelta(days=9)  # the last load has rows of other days, so that a window may cover it alone
WINDOWS: list[Any] = [
    None,
    (START + 5 * HOUR, START + 40 * HOUR),
    (None, START),
    (START + 7 * HOUR, None),
    (START + LATER, START + LATER + 50 * HOUR),
]
SMALL = Tuning(sort_rows=200, slice_rows=80, file_rows=(80, 160), key_block_rows=20)
HOW = {"by ranges": 2.0, "by a scan": -1.0}  # prefix_ranges.MOST_FULL


def drawn(seed: int, after: timedelta = timedelta()) -> pa.Table:
    """Paths with empty parts, with and without a separator at the end, and text of several bytes; NULLs."""
    rng = np.random.default_rng(seed)
    parts = ["", "a", "b", "/", "2F", "ä", "日本", "a.b", "B\U0001f600"]
    weights = np.array([4, 9, 5, 3, 2, 2, 1, 1, 1]) / 28
    paths = ["/".join(rng.choice(parts, rng.integers(1, 5), p=weights)) for _ in range(ROWS)]
    times = [START + after + int(minute) * timedelta(minutes=1) for minute in rng.integers(0, 60 * 48, ROWS)]
    return pa.table(
        {
            "at": pa.array(times, pa.timestamp("us", "UTC")),
            "path": [None if rng.random() < 0.05 else one for one in paths],
            "day": [date(1969, 1, 1) + timedelta(days=int(d) ** 2) for d in rng.integers(0, 99, ROWS)],
            "seen": pa.array(
                [time + timedelta(days=330, seconds=1) for time in times], pa.timestamp("us", "UTC")
            ),
            "x": rng.random(ROWS),
            "code": rng.integers(0, 9, ROWS),
        }
    )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pa.Table]:
    """Three loads, of small blocks, and a live batch."""
    at = tmp_path_factory.mktemp("hierarchy") / "w"
    parts = [drawn(0), drawn(1), drawn(2, LATER), drawn(3)]
    keys = ["path", "day", "seen", "code", ["code", "path"]]
    warehouse.create(None, at, "x", keys=keys, time="at", tick="1h", schema=parts[0].schema)
    for number, part in enumerate(parts[:3]):
        warehouse.load(None, at, part, batch=str(number), tuning=SMALL)
    stream.append(None, at, parts[3], source="s", batch=0)
    return at, pa.concat_tables(parts)


def prefixes_of(key: str, value: Any, separator: str) -> list[str]:
    """Those of one key, the shortest first."""
    if key == "day":
        return [value.isoformat()[:end] for end in (4, 7, 10)]
    if key == "seen":
        return [value.isoformat()[:end] for end in (4, 7, 10, 13, 16, 19)]
    ends = [i + len(separator) for i in found_at(value, separator)]
    return [value[:end] for end in ends] + ([value] if not ends or ends[-1] < len(value) else [])


def found_at(text: str, separator: str) -> list[int]:
    found, at = [], text.find(separator)
    while at >= 0:
        found.append(at)
        at = text.find(separator, at + len(separator))
    return found


def true_counts(
    rows: pa.Table, key: str, separator: str, window: Any
) -> tuple[Counter[tuple[str, int]], int]:
    """The rows of every (prefix, level) in a window, and of all keys."""
    counted: Counter[tuple[str, int]] = Counter()
    start, end = window or (None, None)
    number = 0
    for at, value in zip(rows["at"].to_pylist(), rows[key].to_pylist(), strict=True):
        if value is not None and (start is None or at >= start) and (end is None or at < end):
            counted.update((p, i + 1) for i, p in enumerate(prefixes_of(key, value, separator)))
            number += 1
    return counted, number


def exercise(at: Path, rows: pa.Table, key: str, separator: str = "/") -> None:
    wh = query.open(at)
    own: dict[str, Any] = {"separator": separator} if key == "path" else {}
    for window in WINDOWS:
        true, number = true_counts(rows, key, separator, window)
        for phi in (0.3, 0.02, 1e-6):
            found = wh.hierarchy(phi, key=key, between=window, **own)
            counts = {(one.prefix, one.level): one.count for one in found}
            assert counts == {one: n for one, n in true.items() if n >= phi * number and n}, (
                "a prefix is wrong"
            )
            assert [one.prefix for one in found] == sorted(one.prefix for one in found)
            assert all(one.lo == one.count == one.hi and one.certain for one in found)
            check_rests(found, true, number)
    cut = (START + 5.5 * HOUR, START + 6.25 * HOUR)
    true, number = true_counts(rows, key, separator, cut)
    found = wh.hierarchy(0.1, key=key, between=cut, **own)
    bounds = {(one.prefix, one.level): one for one in found}
    assert all(one.lo <= true[place] <= one.hi for place, one in bounds.items())
    assert {place for place, n in true.items() if n >= 0.1 * number} <= bounds.keys(), "a prefix is missed"
    assert all(true[place] >= 0.1 * number for place, one in bounds.items() if one.certain)


def check_rests(found: Any, true: Counter[tuple[str, int]], number: int) -> None:
    """All rests together are the rows of the keys that some prefix of the list has."""
    rests = sum(one.rest for one in found)
    least = min((one.level for one in found), default=1)
    tops = [one for one in found if one.level == least]
    assert rests <= number
    assert rests >= sum(one.count for one in tops)
    assert all(0 <= one.rest <= one.count for one in found)
    if len(found) == len(true):  # every row belongs to the longest of its prefixes
        assert rests == number


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    ("key", "separator"), [("path", "/"), ("path", "a"), ("path", "本/"), ("day", ""), ("seen", "")]
)
def test_no_prefix_is_missed_and_each_count_is_that_of_the_rows(
    world: tuple[Path, pa.Table], key: str, separator: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefix_ranges, "MOST_FULL", HOW[how])
    exercise(*world, key, separator)


def test_marks_and_few_blocks_tell_prefixes_of_runs_that_a_window_covers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60,000 addresses; a scan reads all of them."""
    rng = np.random.default_rng(4)
    parts = [rng.integers(0, high, 60_000) for high in (4, 200, 250)]
    table = pa.table(
        {"at": [START] * 60_000, "ip": [f"{a}.{b}.{c}" for a, b, c in zip(*parts, strict=True)]}
    ).append_column("x", pa.array(rng.random(60_000)))
    warehouse.create(None, tmp_path / "w", "x", key="ip", time="at", tick="1h", schema=table.schema)
    warehouse.load(None, tmp_path / "w", table, batch="0", tuning=SMALL)
    found = query.open(tmp_path / "w").hierarchy(0.1, ".")
    assert [(one.prefix, one.level) for one in found] == [(f"{a}.", 1) for a in range(4)]
    assert [one.count for one in found] == np.bincount(parts[0]).tolist()
    assert found[0].rows_scanned is not None
    assert found[0].rows_scanned <= 2 * 4 * SMALL.key_block_rows
    monkeypatch.setattr(prefix_ranges, "MOST_FULL", HOW["by a scan"])
    scanned = query.open(tmp_path / "w").hierarchy(0.1, ".")
    assert [(one.prefix, one.count) for one in scanned] == [(one.prefix, one.count) for one in found]
    assert (scanned[0].rows_scanned or 0) > 50_000


def test_a_scan_cuts_text_between_its_bytes() -> None:
    """Also text that is not UTF-8, beside the same cut in Python."""
    rng = np.random.default_rng(5)
    alphabet = [b"", b"a", b"/", b"/", b"\xff", b"2F", "ä".encode(), b"\xf2/\xf2"]
    names = sorted({b"".join(rng.choice(alphabet, 5).tolist()) for _ in range(300)})
    true = Counter((span.low, span.level, span.is_key) for name in names for span in text_spans(b"/")(name))
    with duckdb.connect() as opened:
        opened.execute("CREATE TABLE found AS SELECT NULL::BLOB AS name, 1 AS whole WHERE false")
        opened.executemany("INSERT INTO found VALUES (?, 1)", [(name,) for name in names])
        found = "(SELECT *, 1 AS certain, 1.0 AS estimate, 1 AS rows FROM found)"
        counted = opened.execute(
            f"SELECT prefix, level, is_key, sum(rows) FROM ({key_scan._of_text(found, b'/')}) GROUP BY ALL"
        ).fetchall()
    assert {tuple(row[:3]): int(row[3]) for row in counted} == true


def test_each_part_of_a_window_has_its_prefixes(world: tuple[Path, pa.Table]) -> None:
    at, rows = world
    for one in query.open(at).hierarchy(0.2, "/", every="1d"):
        true, _ = true_counts(rows, "path", "/", one.window)
        assert true[one.prefix, one.level] == one.count


def test_sql_of_duckdb_gives_the_same(world: tuple[Path, pa.Table]) -> None:
    wh = query.open(world[0])
    shown = "prefix, level, count, lo, hi, certain, rest"
    rows = wh.sql(f"SELECT {shown} FROM hierarchy(0.02, separator := '/') ORDER BY prefix").fetchall()
    found = wh.hierarchy(0.02, "/")
    assert rows == [(a.prefix, a.level, a.count, a.lo, a.hi, a.certain, a.rest) for a in found]
    dates = wh.sql(
        "SELECT prefix FROM hierarchy(0.1, key := 'day', mode := 'exact') ORDER BY prefix"
    ).fetchall()
    assert dates == [(a.prefix,) for a in wh.hierarchy(0.1, key="day")]


def test_what_has_no_prefixes_is_refused(world: tuple[Path, pa.Table]) -> None:
    wh = query.open(world[0])
    for arguments, says in (
        ((0.1,), "separator must be text"),
        ((0.1, ""), "separator must be text"),
        ((0.1, 5), "separator must be text"),
        ((0, "/"), r"phi must lie in \(0, 1\]"),
    ):
        with pytest.raises(InputError, match=says):
            wh.hierarchy(*arguments)
    with pytest.raises(InputError, match="Leave it out"):
        wh.hierarchy(0.1, "/", key="day")
    for key in ("code", ["code", "path"]):
        with pytest.raises(InputError, match="one column of text"):
            wh.hierarchy(0.1, "/", key=key)


OF_TEXT, FULL, BLOCKS = key_scan._of_text, prefix_ranges._full, prefix_ranges._Source.blocks
BY_RANGES, INSIDE = prefix_ranges.prefixes_by_ranges, prefix_ranges._inside
MISTAKES: dict[str, tuple[str, Any, str, Any]] = {
    "a key counts for its prefixes alone": (
        "by a scan",
        key_scan,
        "_of_text",
        lambda found, end: f"SELECT * FROM ({OF_TEXT(found, end)}) WHERE NOT is_key",
    ),
    "live rows are left out of a scan": (
        "by a scan",
        hierarchy,
        "prefixes",
        lambda rows, cuts, least: [
            key_scan.Prefix(p.text, p.level, p.is_key, p.whole, p.whole, p.whole, p.whole)
            for p in key_scan.prefixes(rows, cuts, least)
        ],
    ),
    "every prefix is asked for alone": (
        "by ranges",
        hierarchy,
        "_rests",
        lambda found: [round(p.estimate) for p in found],
    ),
    "live rows are left out of ranges": (
        "by ranges",
        hierarchy,
        "prefixes_by_ranges",
        lambda history, live, cuts, least: BY_RANGES(history, live.part(0, 0), cuts, least),
    ),
    "full blocks are not read": ("by ranges", prefix_ranges, "_full", lambda *_: []),
    "the block before the first mark is not read": (
        "by ranges",
        prefix_ranges._Source,
        "blocks",
        lambda self, span: (
            min(BLOCKS(self, span)[0] + (not self.is_exact), len(self.names)),
            BLOCKS(self, span)[1],
        ),
    ),
    "a prefix has no more than the blocks inside": (
        "by ranges",
        prefix_ranges,
        "_inside",
        lambda runs, spans: (INSIDE(runs, spans)[0], {}),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught(
    mistake: str, world: tuple[Path, pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    how, *broken = MISTAKES[mistake]
    monkeypatch.setattr(prefix_ranges, "MOST_FULL", HOW[how])
    monkeypatch.setattr(*broken)
    with pytest.raises(AssertionError):
        exercise(*world, "path")
