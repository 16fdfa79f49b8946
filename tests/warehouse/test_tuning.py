"""Tuning changes files, blocks and ranges. Exact answers, promises and the checks of verify stay."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.query.answers import several
from tests.warehouse.disk import tables_of
from tests.warehouse.hereloader import Loader, rows_of
from tidemark import query, stream, warehouse
from tidemark.query.reading.modes import Mode
from tidemark.warehouse import InputError, Tuning
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, LEDGER
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.sizes import DEFAULT

SMALL = Tuning(
    batch_rows=16,
    batch_bytes=1000,
    group_rows=32,
    group_bytes=2000,
    digest_rows=20,
    sort_rows=64,
    held_bytes=400,
    slice_rows=32,
    file_rows=(32, 64),
    block_rows=16,
    span_cells=8,
    key_block_rows=4,
    key_block_bytes=8,
    fan=3,
    summary_rows=10,
    summary_parts=2,
)
ONES = Tuning(**{field.name: 1 for field in fields(Tuning)} | {"file_rows": (1, 1), "fan": 2})  # type: ignore[arg-type]  # all are whole numbers
KEYS_ASKED = [f"k{i}" for i in range(7)]


def build(folder: Path, tuning: Tuning) -> Loader:
    """Two levels of runs, live batches with ranges of the cascade, and joined files."""
    loader = Loader.create(folder, tuning)
    for seed in range(4):
        loader.load(rows_of(seed, 150))
    for seed in range(10, 20):
        loader.stream(rows_of(seed, 20))
    loader.load_live()
    for seed in range(20, 31):
        loader.stream(rows_of(seed, 20))
    loader.maintain("1 hour")
    return loader


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Loader:
    return build(tmp_path_factory.mktemp("usual") / "w", DEFAULT)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Loader:
    return build(tmp_path_factory.mktemp("small") / "w", SMALL)


def exact_answers(uri: str) -> list[Any]:
    """What can be answered exactly, of all rows and of one day."""
    wh, found = query.open(uri), list[Any]()
    for between in (None, ("1970-01-02", "1970-01-03")):
        for measure in ("x", "n"):
            answers = wh.quantile([i / 20 for i in range(21)], measure, between=between, mode="exact")
            found += [(repr(one.value), one.N, one.nulls) for one in answers]
        counts = several(wh.frequency(KEYS_ASKED, mode="exact", between=between))
        found += [(one.value, one.lo, one.count, one.hi, one.in_history) for one in counts]
        found += [(one.value, one.count) for one in wh.top(3, mode="exact", between=between)]
    return found


def checks(uri: str) -> list[tuple[str, str, bool]]:
    return [(check.name, check.state, check.ok) for check in warehouse.verify(uri).checks]


def ranges(store: Store) -> list[BatchRange]:
    held = ledger_table.ranges_by_file(store, tables.open_table(store, LEDGER))
    return sorted(one for found in held.values() for one in found)


def widths(found: list[BatchRange]) -> set[int]:
    return {one.last - one.first + 1 for one in found}


def row_groups(loader: Loader, table: str) -> list[list[int]]:
    """The rows of each row group of each file of a table."""
    files = data_files.list_files(tables.open_table(loader.store, table))
    footers = [pq.read_metadata(Path(loader.uri, table, file.path)) for file in files]
    return [[one.row_group(g).num_rows for g in range(one.num_row_groups)] for one in footers]


def test_small_sizes_answer_as_the_usual_ones_and_all_checks_hold(usual: Loader, small: Loader) -> None:
    assert exact_answers(small.uri) == exact_answers(usual.uri)
    found = checks(small.uri)
    assert found == checks(usual.uri)
    assert all(ok for _, _, ok in found)


def test_small_sizes_keep_the_promises_of_approximate_answers(usual: Loader, small: Loader) -> None:
    phis = [i / 20 for i in range(19)]  # NaN, the greatest, has no bounds
    true = query.open(usual.uri).quantile(phis, measure="x", mode="exact")
    modes: tuple[tuple[Mode, str], ...] = (("quick", "N"), ("accurate", "m"))
    for mode, of in modes:
        answers = query.open(small.uri).quantile(phis, measure="x", mode=mode)
        for answer, exact in zip(answers, true, strict=True):
            assert answer.error_bound <= answer.eps * getattr(answer, of)
            assert answer.low <= exact.value <= answer.high


def test_small_sizes_make_many_files_blocks_and_ranges(usual: Loader, small: Loader) -> None:
    for table in ("runs/x", "runs/n", "keys/k"):
        assert len(row_groups(small, table)) > len(row_groups(usual, table)), table
        assert any(len(groups) > 1 for groups in row_groups(small, table)), table
        assert all(len(groups) == 1 for groups in row_groups(usual, table)), table
    assert max(rows for groups in row_groups(small, "runs/x") for rows in groups) == SMALL.block_rows
    assert max(rows for groups in row_groups(small, "keys/k") for rows in groups) <= SMALL.key_block_rows
    assert max(rows for groups in row_groups(small, EVENTS) for rows in groups) <= SMALL.group_rows
    assert (widths(ranges(usual.store)), widths(ranges(small.store))) == ({1}, {1, 3, 9})


def test_sizes_of_one_work_too(tmp_path: Path) -> None:
    loaders = [Loader.create(tmp_path / name, tuning) for name, tuning in (("a", ONES), ("b", DEFAULT))]
    for loader in loaders:
        for seed in range(3):
            loader.load(rows_of(seed, 12))
        for seed in range(3, 6):
            loader.stream(rows_of(seed, 5))
    assert exact_answers(loaders[0].uri) == exact_answers(loaders[1].uri)
    assert checks(loaders[0].uri) == checks(loaders[1].uri)


def test_calls_of_one_warehouse_may_have_other_sizes(usual: Loader, tmp_path: Path) -> None:
    """Every call takes the other sizes; a batch that comes again is known by whichever wrote it."""
    loader = build_in_turns(tmp_path / "w")
    assert exact_answers(loader.uri) == exact_answers(usual.uri)
    assert checks(loader.uri) == checks(usual.uri)
    rows = rows_of(0, 150)
    assert warehouse.load(None, loader.uri, rows, "night-0", tuning=SMALL).outcome == "known"
    assert warehouse.load(None, loader.uri, rows, "night-0").outcome == "known"


def build_in_turns(folder: Path) -> Loader:
    class Turns(Loader):
        def _given(self, rows: Any) -> Any:
            self.tuning = SMALL if self.tuning is DEFAULT else DEFAULT
            return super()._given(rows)

    Loader.create(folder)
    loader = Turns(str(folder))
    for seed in range(4):
        loader.load(rows_of(seed, 150))
    for seed in range(10, 20):
        loader.stream(rows_of(seed, 20))
    loader.load_live()
    for seed in range(20, 31):
        loader.stream(rows_of(seed, 20))
    loader.maintain("1 hour")
    return loader


FANS = [2, 5, 3, 32, 7, 2, 3]  # each for six batches


def stream_with_other_fans(folder: Path) -> Loader:
    loader = Loader.create(folder)
    for fan in FANS:
        loader.tuning = replace(DEFAULT, fan=fan)
        for _ in range(6):
            loader.stream(rows_of(loader.streamed, 5))
    return loader


def test_ranges_of_several_fans_nest_and_count_every_batch_once(tmp_path: Path) -> None:
    loader = stream_with_other_fans(tmp_path / "w")
    rows = 5 * 6 * len(FANS)
    found = ranges(loader.store)
    assert widths(found) >= {1, 2, 3, 4}
    for one, other in combinations(found, 2):
        assert one.within(other) or other.within(one) or one.last < other.first or other.last < one.first
    for whole in found:  # parts are ranges of the same fan: no summary is merged more often than it may be
        parts = {one for one in found if one.within(whole) and one != whole}
        fan = next((n for n in range(2, 40) for k in (1, 2, 3, 4) if n**k == whole.last - whole.first + 1), 0)
        assert widths(list(parts)) <= {fan**k for k in range(4)}
    answers = exact_answers(loader.uri)
    for grace in ("1 hour", "0 s"):
        assert warehouse.verify(loader.uri).ok
        (answer,) = query.open(loader.uri).quantile([0.5], mode="quick")
        assert answer.N + answer.nulls == rows
        assert exact_answers(loader.uri) == answers
        loader.maintain(grace)
    loader.load_live()
    assert warehouse.verify(loader.uri).ok
    (answer,) = query.open(loader.uri).quantile([0.5], mode="exact")
    assert answer.N + answer.nulls == rows


def test_ranges_that_cross_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_table, "_fits_cascade", lambda *_: True)
    with pytest.raises(AssertionError):
        test_ranges_of_several_fans_nest_and_count_every_batch_once(tmp_path)


@pytest.mark.parametrize("name", [field.name for field in fields(Tuning)])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, None, "8", 2**40 + 1], ids=str)
def test_a_size_that_cannot_be_is_refused(name: str, value: Any) -> None:
    if (name, value) == ("kept_rows", 0):
        assert Tuning(kept_rows=0).kept_rows == 0  # runs are always written again
        return
    values = [value, (value, 8), (8, value)] if name == "file_rows" else [value]
    for bad in values:
        with pytest.raises(InputError, match=f"{name} must be"):
            Tuning(**{name: bad})


@pytest.mark.parametrize("pair", [(8, 4), (1, 2, 3), [4, 8], 8])
def test_sizes_of_files_are_least_and_most(pair: Any) -> None:
    with pytest.raises(InputError, match=r"file_rows must be .*\(least, most\)"):
        Tuning(file_rows=pair)


def test_a_fan_is_neither_a_square_nor_a_cube() -> None:
    """So the width of a range, a power of the fan up to the fourth, belongs to one fan."""
    refused = {n**k for n in range(1, 12) for k in (2, 3) if n**k < 130}
    for fan in refused:
        with pytest.raises(InputError, match="neither a square nor a cube"):
            Tuning(fan=fan)
    fans = [Tuning(fan=fan).fan for fan in range(2, 130) if fan not in refused]
    powers = [fan**k for fan in fans for k in (1, 2, 3, 4)]
    assert len(set(powers)) == len(powers)


def test_a_call_with_what_is_not_a_tuning_changes_nothing(tmp_path: Path) -> None:
    loader = Loader.create(tmp_path / "w")
    loader.load(rows_of(0))
    loader.stream(rows_of(1))
    before, rows = tables_of(tmp_path / "w"), rows_of(2)
    for bad in (0, "small", {"fan": 3}, Tuning):
        given: Any = {"tuning": bad}
        for call in (
            lambda given=given: warehouse.load(None, loader.uri, rows, "night-9", **given),
            lambda given=given: warehouse.maintain(None, loader.uri, **given),
            lambda given=given: stream.append(None, loader.uri, rows, source="web", batch=9, **given),
        ):
            with pytest.raises(InputError, match=r"tuning must be a tidemark\.warehouse\.Tuning or None"):
                call()
    assert tables_of(tmp_path / "w") == before
