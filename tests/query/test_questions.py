"""What may be asked, what is refused with which words, and how answers look."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.query.answers import several, single
from tests.query.worlds import FakeSnapshot, HandMade, World, open_world
from tidemark import query
from tidemark.query.quantiles.histograms import _edges
from tidemark.query.reading.asked_window import AskedWindow
from tidemark.query.reading.windows import choose_window, shown_window
from tidemark.warehouse.columns.ticks import ALL_TIME, TickGrid
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.errors import DamagedWarehouse, EmptyWindow, InputError
from tidemark.warehouse.projections.sorted_values import SortedValues

ROWS = tuple((float(i), i // 10) for i in range(40))
DAY = TickGrid(86_400_000_000)


@pytest.fixture
def wh(tmp_path: Path) -> HandMade:
    return open_world(tmp_path, World((ROWS[:30],), (ROWS[30:],)))


@pytest.mark.parametrize(
    "phi", [-0.1, 1.1, math.nan, math.inf, "0.5", True, None, 0.5j, [0.5, 2], ["x"], {0.5: 1}.items()]
)
def test_what_is_no_quantile_is_refused(wh: HandMade, phi: Any) -> None:
    with pytest.raises(InputError, match="not a quantile"):
        wh.quantile(phi)


@pytest.mark.parametrize(
    "phi", [0, 1, 0.5, Fraction(1, 3), Decimal("0.07"), np.float64(0.5), np.float32(0.5)]
)
def test_any_number_from_0_to_1_is_a_quantile(wh: HandMade, phi: Any) -> None:
    assert wh.quantile(phi).phi == float(phi)


def test_no_quantiles_give_no_answers(wh: HandMade) -> None:
    answers = wh.quantile([])
    assert len(answers) == 0
    assert answers.to_arrow().column_names[0] == "phi"
    assert "phi" in repr(answers)


@pytest.mark.parametrize("phis", [[0.1, 0.9], (0.1, 0.9), np.array([0.1, 0.9]), (p for p in [0.1, 0.9])])
def test_several_quantiles_come_as_a_sequence(wh: HandMade, phis: Any) -> None:
    answers = wh.quantile(phis, mode="exact")
    assert [a.value for a in answers] == [3.0, 35.0]
    assert answers[-1].phi == 0.9
    assert len(answers[:1]) == 1


def test_an_unknown_measure_lists_those_there_are(wh: HandMade) -> None:
    with pytest.raises(InputError, match=r"no measure 'y' here.*x"):
        wh.quantile(0.5, measure="y")


def test_an_unknown_mode_lists_the_modes(wh: HandMade) -> None:
    with pytest.raises(InputError, match=r"no mode 'fast'.*quick, accurate, exact"):
        wh.quantile(0.5, mode="fast")  # type: ignore[call-overload]  # no mode


def test_windows_that_exclude_each_other_are_refused(wh: HandMade) -> None:
    with pytest.raises(InputError, match="exclude each other"):
        wh.quantile(0.5, last=1, between=(0, 1))


@pytest.mark.parametrize("between", [5, (1,), (1, 2, 3), "ab", ("a", "b"), (3, 3), (True, 2)])
def test_what_is_no_window_is_refused(wh: HandMade, between: Any) -> None:
    with pytest.raises(InputError):
        wh.quantile(0.5, between=between)


def test_a_window_without_rows_says_where_rows_are(wh: HandMade) -> None:
    with pytest.raises(EmptyWindow, match=r"from 7 to before 9\. The data's ticks span 0 to 4"):
        wh.quantile(0.5, between=(7, 9))


def test_an_empty_warehouse_says_so(tmp_path: Path) -> None:
    with pytest.raises(EmptyWindow, match="no rows of 'x' yet"):
        open_world(tmp_path, World(())).quantile(0.5)
    with pytest.raises(EmptyWindow, match="NULL"):
        open_world(tmp_path, World((((None, 1),),))).quantile(0.5)


def test_last_counts_back_from_the_newest_live_tick(wh: HandMade) -> None:
    answer = wh.quantile(0, last=2, mode="exact")
    assert (answer.value, answer.window, answer.n, answer.m) == (20.0, (2, 4), 10, 10)


def test_an_open_window_shows_its_open_side(wh: HandMade) -> None:
    assert wh.quantile(1, between=(None, 2)).window == (None, 2)
    assert wh.quantile(0, between=(3, None)).window == (3, None)
    assert wh.quantile(0).window is None


def test_windows_of_time_are_whole_ticks(wh: HandMade) -> None:
    view = wh._session.newest_view(None)
    window = choose_window(view, AskedWindow(between=("1970-01-02 05:00", date(1970, 1, 4))), DAY)
    assert shown_window(window, DAY) == (datetime(1970, 1, 2, tzinfo=UTC), datetime(1970, 1, 4, tzinfo=UTC))
    newest = choose_window(view, AskedWindow("36 hours"), DAY)
    assert (newest.start, newest.stop) == (2, 4)
    assert shown_window(ALL_TIME, DAY) is None


@pytest.mark.parametrize("point", ["x", None, math.nan, True, object()])
def test_what_has_no_rank_is_refused(wh: HandMade, point: Any) -> None:
    with pytest.raises(InputError):
        wh.rank(point)


def test_ranks_and_shares_come_alone_or_as_a_sequence(wh: HandMade) -> None:
    assert single(wh.rank(9.5, mode="exact")).rank == 10
    assert [int(a) for a in several(wh.rank([-1, 9, 100], mode="exact"))] == [0, 10, 40]
    assert [float(a) for a in several(wh.cdf([9, 19], mode="exact"))] == [0.25, 0.5]
    assert several(wh.cdf([9, 19])).to_arrow().column_names == ["value", "cdf", "cdf_lo", "cdf_hi"]


@pytest.mark.parametrize("bins", [0, -1, 1.5, "5", True, None, [1], [3, 1], [1, math.nan], 10**9])
def test_what_are_no_bins_is_refused(wh: HandMade, bins: Any) -> None:
    with pytest.raises(InputError):
        wh.histogram(bins)


def test_bins_are_numpys(wh: HandMade) -> None:
    values = [v for v, _ in ROWS]
    for bins in (7, [0.0, 3.5, 20, 20, 39.0], [-5, 10, 100]):
        counts, edges = np.histogram(values, bins)
        found = wh.histogram(bins, mode="exact")
        assert found.counts == counts.tolist()
        assert found.edges == pytest.approx(edges.tolist())


def test_a_constant_column_has_one_bin(tmp_path: Path) -> None:
    found = open_world(tmp_path, World((tuple((2**60 + 1, 0) for _ in range(9)),), type="long")).histogram(5)
    assert [(b.left, b.right, b.count) for b in found] == [(2**60 + 1, 2**60 + 1, 9)]


def test_infinite_ends_ask_for_edges(tmp_path: Path) -> None:
    wh = open_world(tmp_path, World((((math.inf, 0), (1.0, 0)),)))
    with pytest.raises(InputError, match="Give their edges"):
        wh.histogram(3)
    assert wh.histogram([0, math.inf]).counts == [2]


def test_only_nan_has_no_histogram(tmp_path: Path) -> None:
    with pytest.raises(EmptyWindow, match="NaN"):
        open_world(tmp_path, World((((math.nan, 0),),))).histogram(3)


@pytest.mark.parametrize(
    ("kind", "least", "most", "expected"),
    [
        ("date", 0, 4, [date(1970, 1, 1), date(1970, 1, 3), date(1970, 1, 5)]),
        ("decimal(9,2)", 0, 3, [Decimal("0.00"), Decimal("0.01"), Decimal("0.03")]),
        ("long", 0, 3, [0, 1.5, 3]),
        ("long", 2**63 - 3, 2**63 - 1, [2**63 - 3, 2**63 - 2, 2**63 - 1]),
        ("double", 0.0, 1.0, [0.0, 0.5, 1.0]),
        ("date", 0, 1, [date(1970, 1, 1), date(1970, 1, 2)]),
    ],
)
def test_edges_are_of_the_measures_own_type(kind: str, least: Any, most: Any, expected: list[Any]) -> None:
    assert _edges(Measure("x", kind), least, most, 2) == expected


def test_answers_say_all_in_one_line_and_as_tables(wh: HandMade) -> None:
    answer = wh.quantile(0.5, mode="exact")
    assert repr(answer).startswith(
        "19 (exact) = quantile 0.5 of x, all rows: N = 40 (30 history + 10 live), exact"
    )
    assert float(answer) == 19.0
    table = repr(wh.quantile([0.25, 0.5]))
    assert len({len(line) for line in table.splitlines()[:4]}) == 1
    shown: list[Any] = [answer, wh.quantile([0.5]), wh.rank(3), wh.cdf(3), wh.histogram(4), wh.info()]
    assert all("<table>" in one._repr_html_() and repr(one) for one in shown)
    assert wh.quantile([0.25, 0.5], mode="exact").to_pandas()["value"].tolist() == [9.0, 19.0]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    wh = open_world(tmp_path, World((ROWS,), eps=0.3))
    next(tmp_path.rglob("*.parquet")).unlink()
    with pytest.raises(DamagedWarehouse, match=r"run=L00.*0\.parquet.*is missing.*tidemark repair"):
        wh.quantile([0.1, 0.31, 0.5])


@pytest.mark.parametrize("keep", [0, 3, 100, 0.5, 0.9, -1])
def test_a_truncated_file_is_named(tmp_path: Path, keep: float) -> None:
    wh = open_world(tmp_path, World((ROWS,), eps=0.3))
    file = next(Path(wh._session.store.uri).rglob("*.parquet"))
    whole = file.read_bytes()
    file.write_bytes(whole[: int(keep * len(whole)) if 0 < keep < 1 else int(keep)])
    with pytest.raises(DamagedWarehouse, match=r"0\.parquet"):
        wh.rank(4.5)


def test_a_file_cut_after_its_footer_was_read_is_named(tmp_path: Path) -> None:
    wh = open_world(tmp_path, World((ROWS,), eps=0.3))
    wh.rank(4.5)
    next(Path(wh._session.store.uri).rglob("*.parquet")).write_bytes(b"PAR1")
    with pytest.raises(DamagedWarehouse, match=r"0\.parquet"):
        wh.rank(14.5)


def test_a_file_of_other_rows_is_named(tmp_path: Path) -> None:
    wh = open_world(tmp_path, World((ROWS, ROWS[:7]), eps=0.3))
    files = sorted(Path(wh._session.store.uri).rglob("*.parquet"))
    files[0].write_bytes(files[1].read_bytes())
    with pytest.raises(DamagedWarehouse, match="it holds 7 rows, its marks say 40"):
        wh.rank(4.5)


def test_a_question_overtaken_by_a_merge_is_put_to_the_newer_view(tmp_path: Path) -> None:
    world = World((ROWS,), eps=0.3)
    old, new = open_world(tmp_path, world), open_world(tmp_path, world)
    for file in Path(old._session.store.uri).rglob("*.parquet"):
        file.unlink()
    views = iter([old._session.newest_view(None), new._session.newest_view(None)])

    class Overtaken(FakeSnapshot):
        def view(self, measure: str | None) -> Any:
            self.options.measure(measure)
            return next(views)

    snapshot = Overtaken(Path(new._session.store.uri), new._session.snapshot.options, [])
    old_path = old._session.newest_view(None).runs[0].files[0]
    assert old_path.path  # both have the same names, so the old one's root is made another
    moved = replace(old._session.newest_view(None), projection=SortedValues(Measure("gone", "double")))
    newest = new._session.newest_view(None)
    views = iter([moved, newest, newest])
    assert single(HandMade(snapshot, world).rank(4.5)).rank == 5


def test_live_rows_that_the_ledger_does_not_know_are_damage(tmp_path: Path) -> None:
    world = World((), (tuple((float(i), 0) for i in range(2000)),), eps=0.3)
    made = open_world(tmp_path, world)
    made._session.world = World((), (((1.0, 0),),))
    with pytest.raises(DamagedWarehouse, match=r"2000 live values of 'x'.*events has 1"):
        made.quantile(0.5, mode="exact")


def test_the_module_asks_the_used_warehouse_or_says_how_to_choose_one(
    wh: HandMade, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query, "_used", {})
    monkeypatch.delenv("TIDEMARK_WAREHOUSE", raising=False)
    with pytest.raises(InputError, match=r"query\.use\(path\).*TIDEMARK_WAREHOUSE"):
        query.quantile(0.5)
    monkeypatch.setattr(query, "_used", {"": wh})
    assert query.quantile(0.5, mode="exact").value == 19.0
    assert query.rank(9, mode="exact").rank == 10
    assert query.cdf(9, mode="exact").cdf == 0.25
    assert sum(query.histogram(3).counts) == 40
    assert query.info()["steps"] == 1
