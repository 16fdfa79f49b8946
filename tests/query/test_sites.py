"""Several warehouses asked as one: the answers are those of one warehouse that has all their rows."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.jobs.said import tidemark
from tests.query.siteworld import DAY, EPS, FIRST, OPTIONS, SCHEMA, Row, Sites, drawn, made
from tests.query.worlds import Oracle
from tidemark import query, warehouse
from tidemark.query.keys import key_source
from tidemark.warehouse.errors import DamagedWarehouse, EmptyWindow, InputError, NotAWarehouse
from tidemark.warehouse.snapshots import sites as sites_module
from tidemark.warehouse.snapshots import views

PHIS = [0, 0.07, 0.5, 0.9, 0.999, 1]
WINDOWS: list[dict[str, Any]] = [
    {},
    {"last": "3d"},
    {"between": (FIRST + 2 * DAY, FIRST + 6 * DAY)},
]


@pytest.fixture(scope="module", params=[1, 4])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sites:
    """One site or four."""
    return made(tmp_path_factory.mktemp("sites"), request.param, request.param)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Sites:
    """Two sites with live rows in both; tests do not change them."""
    world = made(tmp_path_factory.mktemp("two"), 2, 2)
    for name in world.rows:
        world.stream(name, drawn(random.Random(name), 100), 7)
    return world


def inside(rows: list[Row], window: dict[str, Any]) -> list[Row]:
    if not window:
        return rows
    start, end = window["between"]
    timed = [row for row in rows if row["at"] is not None]
    return [
        row for row in timed if (start is None or start <= row["at"]) and (end is None or row["at"] < end)
    ]


def relative(world: Sites, window: dict[str, Any]) -> dict[str, Any]:
    """The window as `between`: `last` counts back from the newest row of all."""
    if "last" not in window:
        return window
    newest = max(row["at"] for row in world.all_rows if row["at"] is not None).replace(hour=0) + DAY
    return {"between": (newest - 3 * DAY, newest)}


def agree(world: Sites, ask: Callable[[query.Warehouse], Any], names: tuple[str, ...]) -> None:
    """These fields of the answers of the sites, and of the whole, are the same."""
    found, wanted = ask(world.reader), ask(world.whole)
    if not isinstance(found, query.Answers):
        found, wanted = [found], [wanted]
    assert [[getattr(one, name) for name in names] for one in found] == [
        [
            pytest.approx(getattr(one, name), nan_ok=True) if name == "value" else getattr(one, name)
            for name in names
        ]
        for one in wanted
    ]
    assert found


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("mode", ["accurate", "exact"])
def test_exact_answers_are_those_of_one_warehouse(world: Sites, mode: Any, window: dict[str, Any]) -> None:
    """The live rows fit into memory, so accurate answers have no error either."""
    options = {**window, "mode": mode}
    quantile = ("phi", "value", "error_bound", "N", "nans", "nulls")
    agree(world, lambda wh: wh.quantile(PHIS, **options), quantile)
    agree(world, lambda wh: wh.quantile(PHIS, "d", **options), quantile)
    agree(world, lambda wh: wh.quantile(0.5, where={"g": ["p", "q"]}, **options), quantile)
    agree(
        world,
        lambda wh: wh.quantile([0.5, 0.9], by="g", every="2d", **options),
        (*quantile, "group", "window"),
    )
    agree(world, lambda wh: wh.quantile(0.9, by="g", order="-value", top=2, **options), (*quantile, "group"))
    agree(world, lambda wh: wh.rank([3, 17.5, 1e9], **options), ("value", "rank", "rank_lo", "rank_hi"))
    agree(world, lambda wh: wh.cdf([3, 17.5], every="3d", **options), ("value", "cdf", "cdf_lo", "cdf_hi"))
    agree(world, lambda wh: wh.largest(3, "d", by="g", **options), ("value", "group"))


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_sums_and_bins_are_those_of_one_warehouse(world: Sites, window: dict[str, Any]) -> None:
    agree(world, lambda wh: wh.summary("d", **window), ("count", "sum", "mean", "min", "max"))
    found, wanted = world.reader.histogram(5, **window), world.whole.histogram(5, **window)
    assert (found.counts, found.edges) == (wanted.counts, wanted.edges)
    assert world.reader.span(**window) == world.whole.span(**window)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("mode", ["quick", "accurate", "exact"])
def test_bounds_hold_and_errors_add(world: Sites, mode: Any, window: dict[str, Any]) -> None:
    """Where live rows do not fit into memory, the error is at most eps of them; for quick, of all rows."""
    wh = world.forgetful
    truth = Oracle.of([row["x"] for row in inside(world.all_rows, relative(world, window))])
    streamed = [row for rows in world.live.values() for row in rows]
    live = Oracle.of([row["x"] for row in inside(streamed, relative(world, window))])
    for answer in wh.quantile(PHIS, mode=mode, **window):
        exact, rank = truth.quantile(answer.phi), truth.rank(answer.phi)
        assert (answer.N, answer.nans, answer.nulls) == (truth.n, truth.nans, truth.nulls)
        assert answer.m == live.n
        allowed = {"quick": truth.n, "accurate": live.n, "exact": 0}[mode] * max(EPS[: len(world.rows)])
        assert answer.error_bound <= allowed
        if not math.isnan(exact):
            assert answer.low <= exact <= answer.high
            assert answer.rank_lo <= truth.le(answer.value) <= answer.rank_hi
            error = max(0, rank - truth.le(answer.value), truth.lt(answer.value) + 1 - rank)
            assert error <= answer.error_bound
    for point in wh.rank([3, 17.5, 50], mode=mode, **window):
        assert point.rank_lo <= truth.le(point.value) <= point.rank_hi


@pytest.mark.parametrize("window", [*WINDOWS, {"between": (FIRST + DAY / 3, FIRST + 5 * DAY / 2)}], ids=str)
def test_keys_are_counted_over_all_sites(world: Sites, window: dict[str, Any]) -> None:
    """Exactly in mode exact; within certain bounds else, and no frequent key is missed."""
    counts = Counter(row["k"] for row in inside(world.all_rows, relative(world, window)))
    names = [*sorted(counts)[:40], "no such key"]
    whole_ticks = all(edge is None or edge.hour == 0 for edge in window.get("between", ()))
    for mode in ("approximate", "exact"):
        for answer in world.reader.frequency(names, mode=mode, **window):
            assert answer.lo <= counts[answer.value] <= answer.hi
            assert not (mode == "exact" and whole_ticks) or answer.count == counts[answer.value]
        found = {answer.value for answer in world.reader.heavy_hitters(0.05, mode=mode, **window)}
        assert {name for name, rows in counts.items() if rows >= 0.05 * counts.total()} <= found
        distinct = world.reader.distinct(mode=mode, **window)
        assert distinct.least <= len(counts) <= distinct.most
    if whole_ticks:
        fields = ("value", "count")
        agree(world, lambda wh: wh.top(5, mode="exact", **window), ("count",))
        agree(world, lambda wh: wh.frequency(names, mode="exact", **window), fields)
        agree(world, lambda wh: wh.self_join(**window), ("count",))
        agree(world, lambda wh: wh.key_range("b", "f", **window), ("count",))
        agree(world, lambda wh: wh.distinct(mode="exact", **window), ("count",))
        agree(
            world, lambda wh: wh.persistent(0.5, mode="exact", **window), ("value", "slots", "window_slots")
        )


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_scans_find_the_rows_of_all_sites(world: Sites, window: dict[str, Any]) -> None:
    fields = ("phi", "value", "rank_lo", "rank_hi", "error_bound", "N", "nans", "nulls", "group")
    agree(world, lambda wh: wh.quantile([0.1, 0.9], where="d > 0 AND k < 'f'", **window), fields)
    agree(world, lambda wh: wh.quantile(0.5, by="k", top=3, every="3d", **window), (*fields, "window"))
    agree(world, lambda wh: wh.quantile(0.5, "x * 2", by="g IS NULL", **window), fields)
    agree(world, lambda wh: wh.summary("d", where={"k": ["a", "b"]}, **window), ("count", "sum", "group"))
    agree(world, lambda wh: wh.frequency("a", by="g", **window), ("count", "group"))
    agree(world, lambda wh: wh.distinct(where="x > 50", every="2d", **window), ("count", "window"))
    answer = world.reader.rank(7, where="x > 5", **window)
    by_site = {name: facts.rows for name, facts in answer.by_site().items()}
    assert by_site == {name: len(inside(rows, relative(world, window))) for name, rows in world.rows.items()}
    assert list(answer.as_of) == list(world.rows)
    assert answer.rows_scanned == sum(by_site.values())


def test_new_and_shared_keys_are_those_of_all_sites(world: Sites) -> None:
    cut = FIRST + 5 * DAY
    before, after = (
        inside(world.all_rows, {"between": (None, cut)}),
        inside(world.all_rows, {"between": (cut, None)}),
    )
    old, new = ({row["k"] for row in rows} for rows in (before, after))
    wh = world.open()
    assert wh.new_keys(between=(cut, None), mode="exact").count == len(new - old)
    shared = wh.overlap((None, cut), (cut, None), mode="exact")
    assert shared.both.count == len(old & new)


def test_a_site_goes_on_loading_and_streaming(pair: Sites) -> None:
    """Rows count once while they move from the live side of one site into its history."""
    wh = pair.open()
    chance = random.Random(9)
    names = list(pair.rows)
    for number in range(3):
        pair.stream(names[number % 2], drawn(chance, 60), 50 + number)
        if number == 1:
            pair.load_live(names[0])
        truth = Oracle.of([row["x"] for row in pair.all_rows])
        answer = wh.quantile(0.5, mode="exact")
        assert (answer.N, answer.value) == (truth.n, truth.quantile(0.5))
        assert wh.frequency("a", mode="exact").count == sum(row["k"] == "a" for row in pair.all_rows)


def test_rows_that_expired_at_one_site_are_told(pair: Sites) -> None:
    horizon = FIRST + 5 * DAY
    for name in pair.rows:
        pair.load_live(name)
    warehouse.expire(None, pair.folder / "site 0", before=horizon)
    left = [row for row in pair.rows["site 0"] if row["at"] is None or row["at"] >= horizon]
    answer = pair.open().quantile(0.5, between=(FIRST, FIRST + 9 * DAY))
    rows = inside([*left, *pair.rows["site 1"]], {"between": (FIRST, FIRST + 9 * DAY)})
    assert Oracle.of([row["x"] for row in rows]).n == answer.N
    assert "that have expired in one of the warehouses" in str(answer.widened)
    assert pair.open().quantile(0.5, between=(horizon, None)).widened is None


def test_last_counts_back_from_the_newest_tick_of_all(pair: Sites) -> None:
    late = {"at": FIRST + 40 * DAY, "x": 1.0, "d": None, "k": "late", "g": "p"}
    pair.stream("site 1", [late], 80)
    answer = pair.open().quantile(0.5, last="1d")
    assert (answer.N, answer.value) == (1, 1.0)
    assert answer.by_site()["site 0"].rows == 0


def test_an_answer_tells_the_versions_and_the_rows_of_each_site(two: Sites) -> None:
    wh = two.open()
    for answer in (
        wh.quantile(0.5),
        wh.quantile([0.5], last="3d")[0],
        wh.frequency("a"),
        wh.quantile([0.5], every="2d")[1],
    ):
        by_site = answer.by_site()
        assert list(by_site) == list(answer.as_of) == list(two.rows)
        for name, facts in by_site.items():
            assert facts.as_of == answer.as_of[name] == query.open(two.uris[name]).quantile(0.5).as_of
        window = {} if answer.window is None else {"between": answer.window}
        assert {name: facts.rows for name, facts in by_site.items()} == {
            name: len(inside(rows, window)) for name, rows in two.rows.items()
        }
    newest = {name: max(row["at"] for row in rows if row["at"]) for name, rows in two.rows.items()}
    assert {name: facts.newest for name, facts in wh.quantile(0.5).by_site().items()} == {
        name: time.replace(hour=0) + DAY for name, time in newest.items()
    }
    assert query.open(two.uris["site 0"]).quantile(0.5).by_site() == {}
    assert json.loads(wh.quantile(0.5).to_json())["as_of"].keys() == two.rows.keys()


def test_a_list_names_sites_by_their_addresses(two: Sites) -> None:
    uris = list(two.uris.values())
    wh = query.open(uris)
    assert list(wh.quantile(0.5).as_of) == uris
    assert repr(wh).startswith(f"Warehouse({uris[0]!r}, {uris[1]!r}: measures x, d; keys k")
    assert list(wh.info()["warehouses"]) == uris
    look = wh._session.newest_view
    assert look("x") is look("x")  # so what is cached by the view serves until there is something newer
    pinned = wh.pinned()
    assert pinned.quantile(0.5).value == wh.quantile(0.5).value
    assert pinned.refresh() is False


def test_the_command_asks_several_warehouses(two: Sites, capsys: pytest.CaptureFixture[str]) -> None:
    named = [f"{name.replace(' ', '_')}={uri}" for name, uri in two.uris.items()]
    said = tidemark(capsys, "quantile", "0.5", "-w", named[0], "-w", named[1], "--json")
    assert said.json["answers"][0]["value"] == two.open().quantile(0.5).value
    assert list(said.json["as_of"]) == ["site_0", "site_1"]
    said = tidemark(capsys, "top", "1", *(part for uri in two.uris.values() for part in ("-w", uri)))
    assert f"{two.open().top(1)[0].count:,}" in said.out
    twice = tidemark(capsys, "quantile", "0.5", "-w", "a=x", "-w", "a=y")
    assert (twice.code, "-w names 'a' twice" in twice.err) == (2, True)


def site(folder: Path, **changed: Any) -> str:
    """A warehouse with one row."""
    schema = changed.pop("schema", SCHEMA)
    measures = changed.pop("measures", ["x", "d"])
    warehouse.create(None, folder, measures, schema=schema, **{**OPTIONS, **changed})
    row = {"at": FIRST, "x": 1, "d": Decimal(1), "k": "1", "g": "p"}
    rows = {
        name: [row[name] if name != "k" or schema.field("k").type == pa.string() else 1]
        for name in schema.names
    }
    warehouse.load(
        None, folder, pa.table({name: pa.array(rows[name], schema.field(name).type) for name in rows}), "b"
    )
    return str(folder)


@pytest.fixture(scope="module")
def one_row(tmp_path_factory: pytest.TempPathFactory) -> str:
    """No test changes it."""
    return site(tmp_path_factory.mktemp("site") / "a")


def typed(name: str, kind: pa.DataType) -> pa.Schema:
    return SCHEMA.set(SCHEMA.get_field_index(name), pa.field(name, kind))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"measures": ["x"]}, r"the measures .*'a' has \['d', 'x'\], 'b' has \['x'\]"),
        ({"schema": typed("x", pa.int64())}, "the type of 'x' .*'a' has 'double', 'b' has 'long'"),
        ({"schema": typed("d", pa.decimal128(9, 3))}, r"'d' .*decimal\(9,2\).*decimal\(9,3\)"),
        ({"schema": typed("k", pa.int64())}, "the type of 'k' .*'string'.*'long'"),
        ({"tick": "1 hour"}, "the tick in microseconds .*86400000000.*3600000000"),
        ({"time": None, "tick": None}, "the time column .*'at'.*None"),
        ({"key": None}, r"the keys .*\[\['g'\], \['k'\]\].*\[\['g'\]\]"),
        ({"groups": None}, r"the (keys|groups) .*\['g'\]"),
        ({"key_delta": 0.2}, "key_delta .*'b' has 0.2"),
    ],
    ids=str,
)
def test_what_must_be_equal_is_refused_with_both_values(
    one_row: str, tmp_path: Path, changed: dict[str, Any], told: str
) -> None:
    with pytest.raises(InputError, match=told):
        query.open({"a": one_row, "b": site(tmp_path / "b", **changed)})


def test_what_may_differ_is_taken(one_row: str, tmp_path: Path) -> None:
    more = SCHEMA.append(pa.field("more", pa.int32()))
    other = site(tmp_path / "b", eps=0.1, kappa=2, key_eps=0.05, measures=["d", "x"])
    third = site(tmp_path / "c", schema=SCHEMA)
    wh = query.open({"a": one_row, "b": other, "c": third})
    assert (wh.eps, wh.quantile(1).N, wh.frequency("1").count) == (0.1, 3, 3)
    assert wh.quantile(1).measure == "x"  # the first measure of the first warehouse
    assert more.names[-1] not in dict(wh.options.columns)


def test_a_warehouse_is_asked_once(two: Sites, tmp_path: Path) -> None:
    one = two.uris["site 0"]
    with pytest.raises(InputError, match="was given twice"):
        query.open([one, one])
    with pytest.raises(InputError, match=r"'a' and 'b' are the same warehouse"):
        query.open({"a": one, "b": f"{one}/"})
    shutil.copytree(one, tmp_path / "copy")
    with pytest.raises(InputError, match=r"or one is a copy of the other .* would count twice"):
        query.open({"a": one, "b": tmp_path / "copy"})


def test_what_is_asked_of_one_warehouse_is_refused(two: Sites) -> None:
    wh = two.open()
    asked: list[Callable[[], Any]] = [wh.contents, lambda: wh.store]
    for ask in asked:
        with pytest.raises(InputError, match=r"asked of one warehouse, and these are 2: 'site 0', 'site 1'"):
            ask()


def test_bad_names_and_moments_are_refused(two: Sites, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no warehouse was given"):
        query.open([])
    with pytest.raises(InputError, match="a warehouse's name must be"):
        query.open({"": two.uris["site 0"]})
    with pytest.raises(NotAWarehouse, match="the warehouse 'gone': "):
        query.open({**two.uris, "gone": tmp_path / "nothing"})
    with pytest.raises(InputError, match="the warehouse '5': a warehouse is a path"):
        query.open([5])  # type: ignore[list-item]
    with pytest.raises(InputError, match="each warehouse counts its own steps"):
        query.open(two.uris, at=0)
    with pytest.raises(InputError, match="storage_options has 'other'"):
        query.open(two.uris, {"other": {"AWS_REGION": "x"}})
    warehouse.create(None, tmp_path / "empty", ["x", "d"], **OPTIONS)
    with pytest.raises(EmptyWindow, match="the warehouse 'empty' has no rows yet"):
        query.open({**two.uris, "empty": tmp_path / "empty"})


def test_steps_of_different_warehouses_are_no_window(tmp_path: Path) -> None:
    options = {"time": None, "tick": None}
    wh = query.open([site(tmp_path / "a", **options), site(tmp_path / "b", **options)])
    assert wh.quantile(0.5).N == wh.frequency("1").N == 2
    for ask in (
        lambda: wh.quantile(0.5, last=1),
        lambda: wh.frequency("1", between=(0, 1)),
        lambda: wh.rank(1, every=1),
    ):
        with pytest.raises(InputError, match="counts steps, because these warehouses have no time column"):
            ask()


def test_the_error_of_a_site_names_it(pair: Sites) -> None:
    wh = pair.open()
    wh.quantile(0.5)
    shutil.rmtree(pair.folder / "site 1" / "runs")
    with pytest.raises(DamagedWarehouse, match="site 1"):
        pair.open().quantile(0.5)


@pytest.fixture
def broken(two: Sites) -> Callable[[], bool]:
    """Whether a broken variant, which the test has put in place, is noticed."""

    def is_noticed() -> bool:
        for name in ("reader", "forgetful"):
            vars(two).pop(name, None)
        try:
            for window in WINDOWS[:2]:
                test_bounds_hold_and_errors_add(two, "exact", window)
                test_keys_are_counted_over_all_sites(two, window)
            test_an_answer_tells_the_versions_and_the_rows_of_each_site(two)
            assert two.open().rank(7, where="x > 5").rows_scanned == len(two.all_rows)
        except (AssertionError, DamagedWarehouse, ValueError):
            return True
        return False

    return is_noticed


def _without_runs(found: Any) -> Any:
    return replace(found, runs=found.parts[0].runs)


def _without_live_rows(found: Any) -> Any:
    return replace(found, live=found.parts[0].live) if hasattr(found, "live") else found


def _with_equal_sources(found: Any) -> Any:
    counts = {place: rows for part in found.parts for place, rows in part.live_counts.items()}
    return replace(found, live_counts=counts)


def test_without_a_mistake_nothing_is_noticed(broken: Callable[[], bool]) -> None:
    assert not broken()


@pytest.mark.parametrize("mistake", [_without_runs, _without_live_rows, _with_equal_sources])
def test_a_union_that_leaves_out_rows_is_caught(
    broken: Callable[[], bool], monkeypatch: pytest.MonkeyPatch, mistake: Callable[[Any], Any]
) -> None:
    right = views.united
    monkeypatch.setattr(sites_module, "united", lambda *given: mistake(right(*given)))
    assert broken()


def test_runs_that_are_told_apart_by_their_steps_alone_are_caught(
    broken: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_source, "_name_of", lambda marks: marks.run.name)
    assert broken()
