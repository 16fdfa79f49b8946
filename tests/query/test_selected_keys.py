"""Questions about keys with `where` and `by`, by a scan of `events`, against Counters of the rows."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from copy import copy
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.query.groupworld import BATCHES, HOUR, SCHEMA, START, WINDOWS, GroupWorld, Row
from tests.query.keyoracle import plain, shown
from tests.soak import draws
from tidemark.query import InputError
from tidemark.query.answers.answer_columns import AnswerColumns
from tidemark.query.asking import scanned_keys
from tidemark.query.reading import sql_text
from tidemark.query.scans import duckdb_files, key_scan, row_source
from tidemark.warehouse.events.visible_files import VisibleFile
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.snapshots.system_tables import Contents

Patch = pytest.MonkeyPatch
Window = tuple[datetime, datetime] | None
KEYS: list[Any] = ["origin", "number", "value", "price", ["number", "origin"], ["value", "price"]]
CUT = timedelta(minutes=15)

# Conditions, and what they mean in Python.
WHERE: list[tuple[Any, Callable[[Row], bool]]] = [
    (None, lambda _: True),
    ("number >= 1 AND origin <> ''", lambda row: row[2] is not None and row[2] >= 1 and bool(row[1])),
    ("origin IS NULL OR price < 0", lambda row: row[1] is None or (row[4] is not None and row[4] < 0)),
    ("hour(time) % 2 = 0", lambda row: row[0] is not None and row[0].hour % 2 == 0),
    ({"origin": ["a", "é" * 30]}, lambda row: row[1] in {"a", "é" * 30}),
    ({"value": math.nan}, lambda row: row[3] is not None and math.isnan(row[3])),
    ({"number": 1, "origin": "a"}, lambda row: row[1:3] == ("a", 1)),
]
# Columns and expressions of `by`, and their values in Python.
BY: list[tuple[Any, Callable[[Row], tuple[Any, ...]]]] = [
    (None, lambda _: ()),
    ("origin", lambda row: (row[1],)),
    ("value", lambda row: (plain(row[3]),)),
    (["number", "origin"], lambda row: (row[2], row[1])),
    ("hour(time)", lambda row: (None if row[0] is None else row[0].hour,)),
    (["origin", "number % 2 = 1"], lambda row: (row[1], None if row[2] is None else row[2] % 2 == 1)),
]
EVERY = [None, "5h"]


class Truth:
    """The rows of each group: for each window a Counter of the keys, how many are live, and of NULL."""

    def __init__(self, rows: list[tuple[Row, bool]], key: Any, by: Callable[[Row], tuple[Any, ...]]) -> None:
        columns = [key] if isinstance(key, str) else key
        places = [SCHEMA.names.index(name) for name in columns]
        self.groups: dict[tuple[Any, ...], list[tuple[Row, bool, Any]]] = {}
        for row, is_live in rows:
            group, values = by(row), tuple(plain(row[place]) for place in places)
            name = None if None in values else values[0] if isinstance(key, str) else values
            if None not in group:
                self.groups.setdefault(group, []).append((row, is_live, name))

    def of(self, group: tuple[Any, ...], window: Window) -> tuple[Counter[Any], Counter[Any], int]:
        """All rows of each key, the live ones, and the rows without a key."""
        inside = [one for one in self.groups.get(group, []) if holds(window, one[0][0])]
        keys = Counter(name for _, _, name in inside if name is not None)
        live = Counter(name for _, is_live, name in inside if is_live and name is not None)
        return keys, live, sum(name is None for _, _, name in inside)


def holds(window: Window, time: datetime | None) -> bool:
    if window is None:
        return True
    return time is not None and window[0] <= time < window[1]


def made(folder: Path, batches: Any, *keys: Any) -> tuple[GroupWorld, list[tuple[Row, bool]]]:
    """A world, and its rows with whether they are live."""
    world = GroupWorld.create(folder, groups=["origin"], keys=keys or KEYS)
    rows = []
    for is_loaded, batch in batches:
        world.add(batch, load=is_loaded)
        rows += [(row, not is_loaded) for row in batch]
    return world, rows


def group_of(answer: Any, by: Any) -> tuple[Any, ...]:
    columns = [] if by is None else [by] if isinstance(by, str) else by
    return tuple(plain(answer.group[column]) for column in columns)


def check(
    world: GroupWorld,
    rows: list[tuple[Row, bool]],
    key: Any,
    where: tuple[Any, Callable[[Row], bool]],
    by: tuple[Any, Callable[[Row], tuple[Any, ...]]],
    window: Window,
    every: str | None,
) -> None:
    """Each question, with everything that its answers say."""
    wh = world.open()
    timed = [one for one in rows if every is None or one[0][0] is not None]  # others are in no part
    inside = [one for one in timed if holds(window, one[0][0])]
    truth = Truth([one for one in inside if where[1](one[0])], key, by[1])
    asked: dict[str, Any] = {
        "key": key,
        "where": where[0],
        "by": by[0],
        "between": window,
        "every": every,
    }
    distinct = wh.distinct(**asked)
    numbers = [distinct] if by[0] is None and every is None else list(distinct)
    if by[0] is not None:
        assert {group_of(one, by[0]) for one in numbers} == set(truth.groups)
    joins = wh.self_join(**asked)
    for one, join in zip(numbers, [joins] if numbers == [distinct] else joins, strict=True):
        keys, live, nulls = truth.of(group_of(one, by[0]), one.window if every else window)
        assert one.lo == one.hi == one.least == one.most == one.count == len(keys)
        assert join.lo == join.hi == join.count == sum(rows**2 for rows in keys.values())
        for answer in (one, join):
            assert (answer.n, answer.m) == (sum(keys.values()) - sum(live.values()), sum(live.values()))
            assert (answer.nulls, answer.eps, answer.mode) == (nulls, 0, "exact")
            assert answer.rows_scanned == rows_read(timed, window)
    for k in (1, 3, 2**63 - 1):
        tops = by_part(wh.top(k, **asked), by[0])
        for one in numbers:
            keys, live, _ = truth.of(group_of(one, by[0]), one.window if every else window)
            found = tops.pop(part_of(one, by[0]), [])
            assert [hit.count for hit in found] == [count for _, count in keys.most_common(k)]
            assert all(keys[shown(hit.value)] == hit.lo == hit.hi and hit.certain for hit in found)
            assert all(hit.in_history == hit.count - live[shown(hit.value)] for hit in found)
        assert not tops
    for phi in (0.2, Fraction(1, 10**6)):
        hitters = by_part(wh.heavy_hitters(phi, **asked), by[0])
        for one in numbers:
            keys, _, _ = truth.of(group_of(one, by[0]), one.window if every else window)
            counts = {shown(hit.value): hit.count for hit in hitters.pop(part_of(one, by[0]), [])}
            assert counts == {v: count for v, count in keys.items() if count >= phi * sum(keys.values())}
        assert not hitters
    check_frequencies(wh, asked, truth, window)


def rows_read(rows: list[tuple[Row, bool]], window: Window) -> int:
    """The rows of whole ticks that the window touches."""
    if window is None:
        return len(rows)
    start, end = (START + (edge - START) // HOUR * HOUR for edge in window)
    end += HOUR if end < window[1] else timedelta(0)
    return sum(holds((start, end), row[0]) for row, _ in rows)


def part_of(answer: Any, by: Any) -> tuple[Any, ...]:
    return group_of(answer, by), answer.window


def by_part(answers: Any, by: Any) -> dict[tuple[Any, ...], list[Any]]:
    found: dict[tuple[Any, ...], list[Any]] = {}
    for one in answers:
        found.setdefault(part_of(one, by), []).append(one)
    return found


def check_frequencies(wh: Any, asked: dict[str, Any], truth: Truth, window: Window) -> None:
    names = {name for group in truth.groups.values() for _, _, name in group if name is not None}
    values = [*sorted(names, key=repr)[:5], *sorted(names, key=repr)[:1]]
    given = [
        tuple(math.nan if v == "NaN" else v for v in one) if isinstance(one, tuple) else one for one in values
    ]
    given = [math.nan if one == "NaN" else one for one in given]
    answers = list(wh.frequency(given, **asked))
    for number, one in enumerate(answers):
        keys, live, _ = truth.of(group_of(one, asked["by"]), one.window if asked["every"] else window)
        name = values[number % len(values)]
        assert (one.count, one.lo, one.hi) == (keys[name],) * 3
        assert one.in_history == keys[name] - live[name]


@given(
    batches=BATCHES,
    window=WINDOWS,
    key=st.sampled_from(KEYS),
    where=st.sampled_from(WHERE),
    by=st.sampled_from(BY),
    every=st.sampled_from(EVERY),
    is_cut=st.booleans(),
)
@settings(max_examples=draws(3))
def test_selected_keys_are_counted_as_a_counter_does(
    tmp_path_factory: pytest.TempPathFactory,
    batches: Any,
    window: Window,
    key: Any,
    where: Any,
    by: Any,
    every: str | None,
    is_cut: bool,
) -> None:
    """NaN, NULL, infinities, bounds of integers, tuples; live rows; windows that cut ticks: exact, too."""
    if where[0] is None and by[0] is None:
        by = BY[1]
    world, rows = made(tmp_path_factory.mktemp("w"), batches, key)
    if window is not None and is_cut and every is None:
        window = (window[0] + CUT, window[1] + 2 * CUT)
    check(world, rows, key, where, by, window, every)
    with Patch.context() as patch:  # rows that DuckDB does not read by itself
        patch.setattr(duckdb_files.ScannedColumns, "path_of", lambda *_: None)
        check(world, rows, key, where, by, window, every)


def rows_of(batch: int) -> list[Row]:
    return [
        (
            START + (i % 9) * HOUR + CUT * (i % 4),
            ["a", "b", None, "", "a"][i % 5],
            i % 4 or None,
            math.nan if i % 7 == 0 else float(i % 3),
            Decimal(i * batch % 5) / 4,
        )
        for i in range(50 + batch)
    ]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> tuple[GroupWorld, list[tuple[Row, bool]]]:
    """Three loads and two live batches, and a batch that is not visible; to be read alone."""
    batches = [(batch < 3, rows_of(batch)) for batch in range(5)]
    world, rows = made(tmp_path_factory.mktemp("known"), batches)
    with Patch.context() as patch:
        patch.setattr(ledger_table, "append_batch", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            world.add(rows_of(7), load=False)
    return world, rows


def without_live(self: Contents) -> Any:
    return tuple(one for one in VISIBLE(self) if not one.is_live)


def all_batches(self: Contents) -> Any:
    seen = VISIBLE(self)
    hidden = {one.path: one for one in self.list_events()}
    for one in seen:
        hidden.pop(one.file.path, None)
    return (*seen, *(VisibleFile(one, True, (), True) for one in hidden.values()))


def without_condition(source: row_source.RowSource) -> row_source.RowSource:
    other = copy(source)
    other.expression = None
    return other


VISIBLE = Contents.visible_files
READ = row_source.RowSource._read_by_duckdb
COUNT_DISTINCT = key_scan.KeyScan._distinct
BROKEN: dict[str, tuple[Any, str, Any]] = {
    "live rows are left out": (Contents, "visible_files", without_live),
    "rows of a batch without ledger are counted": (Contents, "visible_files", all_batches),
    "the condition is asked of history alone": (
        row_source.RowSource,
        "_read_by_duckdb",
        lambda self, place, paths: READ(without_condition(self) if place.is_live else self, place, paths),
    ),
    "the cut of a tick is not asked": (scanned_keys, "_times", lambda *_: None),
    "rows without a key are a key": (key_scan.KeyScan, "_has_key", "true"),
    "each row is a key of its own": (
        key_scan.KeyScan,
        "_distinct",
        lambda self, relation: COUNT_DISTINCT(self, relation).replace("DISTINCT", ""),
    ),
    "live rows are rows of history, too": (
        key_scan.KeyScan,
        "_distinct",
        lambda self, relation: COUNT_DISTINCT(self, relation).replace(" - ", " - 0 * "),
    ),
    "a key of the first is left out": (
        key_scan,
        "with_most",
        lambda table, k, *rest: sql_text.with_most(table, max(1, k - 1), *rest),
    ),
    "all groups are one": (scanned_keys.ChosenParts, "_parts", property(lambda self: self._places * 0)),
}


@pytest.mark.parametrize("broken", [None, *BROKEN])
def test_broken_scans_of_keys_are_noticed(
    known: tuple[GroupWorld, list[tuple[Row, bool]]], monkeypatch: Patch, broken: str | None
) -> None:
    window = (START + 2 * HOUR + CUT, START + 7 * HOUR + 2 * CUT)

    def checked() -> None:
        for key, where in (("number", WHERE[3]), (["number", "origin"], WHERE[1])):
            check(*known, key, where, BY[1], window, None)

    if broken is None:
        checked()
        return
    monkeypatch.setattr(*BROKEN[broken])
    with pytest.raises((AssertionError, TypeError, KeyError)):
        checked()


def test_top_limit_order_and_least_rows_choose_among_the_groups(
    known: tuple[GroupWorld, list[tuple[Row, bool]]],
) -> None:
    world, rows = known
    wh, sizes = world.open(), Counter(row[1] for row, _ in rows if row[1] is not None)
    users = {name: len({row[2] for row, _ in rows if row[1] == name} - {None}) for name in sizes}
    names = sorted(sizes)
    assert wh.distinct(key="number", by="origin").to_pandas()["origin"].tolist() == names
    asked: dict[str, Any] = {"key": "number", "by": "origin"}
    assert [group_of(one, "origin")[0] for one in wh.distinct(**asked, top=2)] == sorted(
        names, key=lambda name: (-sizes[name], name)
    )[:2]
    ordered = wh.distinct(**asked, order="-value")
    assert [group_of(one, "origin")[0] for one in ordered] == sorted(names, key=lambda name: -users[name])
    assert "by origin, all rows: 3 groups in the order -value" in repr(ordered)
    chosen = wh.distinct(**asked, groups=["b", "nowhere", "b"])
    assert [one.count for one in chosen] == [users["b"], 0, users["b"]]
    with pytest.raises(InputError, match="3 groups by origin, more than limit=2"):
        wh.distinct(**asked, limit=2)
    kept = wh.self_join(**asked, least_rows=max(sizes.values()), order="rows")
    most = {name for name in names if sizes[name] == max(sizes.values())}
    assert {group_of(one, "origin")[0] for one in kept} <= most
    rare = wh.frequency(2, **asked, order="value", top=1, every="5h")
    assert [one.count for one in rare] == [
        min(one.count for one in wh.frequency(2, **asked, every="5h") if one.window == part.window and one.N)
        for part in rare
    ]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (lambda wh: wh.top(2, by="nothing"), "no column 'nothing'"),
        (lambda wh: wh.top(2, top=3), "top=3 was given without by"),
        (lambda wh: wh.top(2, by="origin", order="-value"), "needs one value for each group"),
        (lambda wh: wh.frequency(["a", "b"], by="number", order="value"), "needs one value for each group"),
        (lambda wh: wh.distinct(where="random() < 0.5"), "random"),
        (lambda wh: wh.top(0, where="number = 1"), "k must be a whole number"),
        (lambda wh: wh.heavy_hitters(2, where="number = 1"), "phi must lie in"),
        (lambda wh: wh.frequency(3.5, by="origin"), "origin"),
        (lambda wh: wh.distinct(where={}), "where must map columns"),
        (lambda wh: wh.hierarchy(0.1, "/", where="number = 1"), "unexpected keyword argument 'where'"),
        (lambda wh: wh.top(1, key="origin", where="CAST(origin AS INTEGER) = 1"), "CAST"),
    ],
)
def test_what_no_scan_of_keys_answers_is_refused(
    known: tuple[GroupWorld, list[tuple[Row, bool]]], asked: Callable[[Any], Any], words: str
) -> None:
    with pytest.raises(InputError) as told:
        asked(known[0].open())
    assert words in str(told.value)


def test_a_condition_that_no_row_meets_has_no_keys(known: tuple[GroupWorld, list[tuple[Row, bool]]]) -> None:
    wh = known[0].open()
    number = wh.distinct(where="number > 99")
    assert (number.count, number.N, number.rows_scanned) == (0, 0, len(known[1]))
    assert "where (number > 99)" in repr(number)
    assert f"a scan of {len(known[1]):,} rows" in repr(number)
    for answers in (
        wh.top(3, where="number > 99"),
        wh.top(3, by="origin", where="number > 99"),
        wh.distinct(by="origin", where="number > 99", every="5h"),
    ):
        assert list(answers) == []
    assert [one.count for one in wh.frequency("a", where="number > 99", every="5h")] == [0, 0, 0]


def test_numbers_of_many_parts_are_objects_when_somebody_takes_them(
    known: tuple[GroupWorld, list[tuple[Row, bool]]], monkeypatch: Patch
) -> None:
    wh, made = known[0].open(), list[int]()
    right = AnswerColumns._answer

    def counted(self: Any, at: int) -> Any:
        made.append(at)
        return right(self, at)

    questions: list[Any] = [
        lambda: wh.distinct(key="number", by=["origin", "number % 2 = 1"], every="5h", where="number >= 0"),
        lambda: wh.self_join(key="origin", by="value", order="-value"),
    ]
    for ask in questions:
        answers = ask()
        monkeypatch.setattr(AnswerColumns, "_answer", counted)
        made.clear()
        columns = answers.to_arrow()
        assert (len(columns), made) == (len(answers), [])
        assert columns["count"].to_pylist() == [one.count for one in answers]
        assert answers[-1].group == list(answers)[-1].group
        assert pickle.loads(pickle.dumps(answers)).to_json() == answers.to_json()
        monkeypatch.undo()


def test_sql_has_the_same_answers(known: tuple[GroupWorld, list[tuple[Row, bool]]]) -> None:
    wh, where = known[0].open(), "number >= 1"
    found = wh.sql(
        """SELECT "group"['origin'], value, count, rows_scanned FROM top(2, key := 'number',
        "by" := 'origin', "where" := 'number >= 1')"""
    ).fetchall()
    answers = wh.top(2, key="number", by="origin", where=where)
    assert found == [
        (one.group["origin"], str(one.value), one.count, one.rows_scanned) for one in answers if one.group
    ]
    counts = wh.sql(
        """SELECT count FROM "distinct"(key := 'number', "by" := 'origin', "order" := '-value', "top" := 2)"""
    ).fetchall()
    assert counts == [(one.count,) for one in wh.distinct(key="number", by="origin", order="-value", top=2)]
    numbers = wh.sql("""SELECT count FROM frequency(1, key := 'number', "where" := {'origin': 'a'})""")
    assert numbers.fetchall() == [(wh.frequency(1, key="number", where={"origin": "a"}).count,)]


def test_a_scan_of_keys_needs_no_pandas(known: tuple[GroupWorld, list[tuple[Row, bool]]]) -> None:
    """Its import is half a second of a process that asks one question."""
    script = """
import sys
from tidemark import query
wh = query.open(sys.argv[1])
wh.top(3, key="origin", where="number >= 1")
wh.frequency([1, 2], key="number", by="origin", where="number >= 1")
wh.distinct(key="origin", by="number", every="2h", width="5h")
wh.quantile(0.5, "price", where="number >= 1", every="2h", width="5h", by="origin")
print("pandas" in sys.modules)
"""
    run = [sys.executable, "-c", script, str(known[0].path)]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == "False\n"
