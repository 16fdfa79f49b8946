"""Rows by groups that are integers are those of a plain loop, however threads share them."""

from __future__ import annotations

import math
import random
import tracemalloc
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.warehouse.test_looped_sums import use_loop
from tidemark.query.reading import number_parts, shares
from tidemark.query.scans import coded_pieces, coded_rows, event_scan, plain_files
from tidemark.query.scans.coded_pieces import CodeTotals, Piece
from tidemark.query.scans.coded_rows import CodedRows
from tidemark.query.scans.plain_files import FileReading, PlainFile
from tidemark.warehouse.columns.code_sums import EachSums
from tidemark.warehouse.columns.codes import stable_order
from tidemark.warehouse.columns.exact_sums import UNIT_BITS, Sums
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.looped_sums import LoopedSums
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.errors import DamagedWarehouse

SPANS = [[7], [0, 1], [-3, 5, 300], range(1000), [-(2**63), 0, 2**63 - 1]]


def world(rng: random.Random) -> tuple[pa.Table, int]:
    """Columns of the group, the value, and often whether a row is live; and how many columns there are."""
    count, width = rng.choice([0, 1, 50, 400]), rng.choice([1, 2])
    spans = [list(rng.choice(SPANS)) for _ in range(width)]
    columns: dict[str, Any] = {
        f"group {i}": pa.array([rng.choice(span) for _ in range(count)], pa.int64())
        for i, span in enumerate(spans)
    }
    values: list[Any] = [None, *([] if rng.random() < 0.5 else [None] * 3), -(2**63), 2**63 - 1, 0, 7]
    kind = rng.choice([pa.float64(), pa.int64()])
    if kind == pa.float64():
        values = [*values[:-4], math.nan, math.inf, -math.inf, 5e-324, -1.7e308, 0.5, 1.5, 2.5]
    if rng.random() < 0.3:
        values = values[-3:]
    columns["value"] = pa.array([rng.choice(values) for _ in range(count)], kind)
    if rng.random() < 0.7:
        columns["live"] = pa.array([int(rng.random() < 0.4) for _ in range(count)], pa.uint8())
    table = pa.table(columns)
    cut = rng.randrange(count + 1)
    return pa.concat_tables([table[:cut], table[cut:]]), width


def truth(table: pa.Table, width: int) -> dict[tuple[int, ...], Any]:
    """By group: its numbers, (n, m, nans, nulls), its exact sums, and its ends."""
    found: dict[tuple[int, ...], Any] = {}
    rows: dict[tuple[int, ...], list[Any]] = defaultdict(list)
    for row in table.to_pylist():
        *group, value, live = [*row.values(), 0][: width + 2]
        rows[tuple(group)].append((value, live))
    for values, own in rows.items():
        there = [(value, live) for value, live in own if value is not None]
        numbers = sorted(value for value, _ in there if not math.isnan(value))
        m = sum(live for _, live in there)
        counts = [len(there) - m, m, len(there) - len(numbers), len(own) - len(there)]
        ends = [numbers[0], numbers[-1]] if numbers else [0, 0]
        found[values] = (list(map(repr, numbers)), counts, sum(map(sums_of, numbers), Sums()), ends)
    return found


def sums_of(number: Any) -> Sums:
    if isinstance(number, int):
        return Sums(1, number, number**2)
    if math.isinf(number):
        return Sums(negative=int(number < 0), positive=int(number > 0))
    above, below = number.as_integer_ratio()
    whole = above * 2**UNIT_BITS // below
    return Sums(1, whole, whole**2)


def shown(rows: CodedRows) -> dict[tuple[int, ...], Any]:
    groups = list(zip(*(column.to_pylist() for column in rows.stored), strict=True))
    sums, ends = list(rows.sums()), rows.ends().tolist()
    values = np.split(rows.parts.numbers, rows.parts.edges[1:-1]) if groups else []
    numbers = [list(map(repr, sorted(own.tolist()))) for own in values]
    parts = zip(numbers, rows.counts.tolist(), sums, ends, strict=True)
    found = dict(zip(groups, parts, strict=True))
    assert len(found) == len(groups)  # each group once
    return found


def check(patch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3)
    for _ in range(120):
        table, width = world(rng)
        cut = rng.random()
        patch.setattr(coded_rows, "PIECE_ROWS", rng.choice([1, 30, 2**14]))
        patch.setattr(coded_rows, "FEW_GROUPS", rng.choice([0, 2**6]))
        few = rng.choice([0, 8])
        for module in (coded_rows, coded_pieces):
            patch.setattr(module, "FEWEST_CODES", few)
        patch.setattr(
            coded_rows,
            "shares_of",
            lambda sizes, _=1, cut=cut: list(pairwise([0, int(cut * len(sizes)), len(sizes)])),
        )
        assert shown(CodedRows.of(table, width)) == truth(table, width)


def check_files(folder: Path) -> None:
    """Of whole files, also with NULL in columns of the group, some of them live."""
    rng = random.Random(5)
    for number in range(20):
        tables = [world(rng)[0].select(["group 0", "value"]) for _ in range(3)]
        kind = tables[0].schema.field("value").type
        tables = [one for one in tables if one.schema.field("value").type == kind]
        if any(abs(one or 0) > 1000 for table in tables for one in table.column(0).to_pylist()):
            continue
        files, rows = [], []
        for place, drawn in enumerate(tables):
            groups = [None if rng.random() < 0.1 else one for one in drawn.column(0).to_pylist()]
            table = drawn.set_column(0, "group 0", pa.array(groups, pa.int32()))
            path = str(folder / f"{number} {place}.parquet")
            pq.write_table(table, path, row_group_size=70)
            files.append(PlainFile(path, ("group 0", "value"), len(table), place == 1))
            live = pa.array([int(place == 1)] * len(table), pa.uint8())
            rows.append(table.append_column("live", live).filter(table.column(0).is_valid()))
        table = pa.concat_tables(rows)
        measure = Measure("value", "double" if kind == pa.float64() else "long")
        span = coded_rows._span(table.column(0))
        by = [Key("group 0", "integer")]
        found = CodedRows.of_files(files, [span], measure, by, FileReading(files))
        assert found is not None
        assert shown(found) == truth(table, 1)
        found = CodedRows.of_files(files, [span], measure, by, FileReading(files), summed=True)
        assert found is not None
        assert not len(table) or found.totals is not None
        assert shown(found) == truth(table, 1)
        smaller = [(span[0], span[1] - 1)]
        found = CodedRows.of_files(files, smaller, measure, by, FileReading(files))
        assert len(table) == 0 or found is None


@pytest.mark.parametrize(("cores", "is_looped"), [(1, False), (3, False), (3, True)])
def test_whole_files_are_read_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, is_looped: bool
) -> None:
    monkeypatch.setattr(shares, "SHARED", 0)
    monkeypatch.setattr(shares, "CORES", cores)
    if is_looped:
        use_loop(monkeypatch)
    check_files(tmp_path)


def check_changed_file(folder: Path) -> None:
    """A file that was written anew is read by its new footer."""
    measure, by, path = Measure("value", "long"), [Key("group", "integer")], str(folder / "changed.parquet")
    for rows, of_group in ((70, 70), (90, 9)):
        table = pa.table({"group": pa.array([1] * rows, pa.int32()), "value": np.arange(rows)})
        pq.write_table(table, path + ".new", row_group_size=of_group)
        Path(path + ".new").rename(path)
        files = [PlainFile(path, ("group", "value"), rows, False)]
        for _ in range(2):
            found = CodedRows.of_files(files, [(1, 1)], measure, by, FileReading(files))
            assert found is not None
            assert found.sums()[0] == Sums(rows, sum(range(rows)), sum(i * i for i in range(rows)))


def test_a_footer_is_kept_while_its_file_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_changed_file(tmp_path)
    monkeypatch.setattr(plain_files, "checked_file", lambda path: SimpleNamespace(identity=path))
    with pytest.raises((AssertionError, DamagedWarehouse)):
        check_changed_file(tmp_path)


def _live_files_are_history(patch: pytest.MonkeyPatch) -> None:
    right = plain_files.read_rows
    patch.setattr(
        coded_rows,
        "read_rows",
        lambda files, *rest: right([one._replace(is_live=False) for one in files], *rest),
    )


def _null_is_the_group_0(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plain_files, "as_numpy_bools", lambda column: np.zeros(len(column), bool))


def _small_pieces_are_not_added(patch: pytest.MonkeyPatch) -> None:
    right = CodeTotals.add
    patch.setattr(CodeTotals, "add", lambda to, one: right(to, one) if len(one.numbers) > 60 else None)


def _rows_that_the_loop_leaves_are_lost(patch: pytest.MonkeyPatch) -> None:
    use_loop(patch)
    right = coded_rows._rest
    patch.setattr(coded_rows, "_rest", lambda *given: iter([one for one in right(*given) if one is None]))


def _rows_of_the_loop_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    use_loop(patch)
    patch.setattr(LoopedSums, "counts", 0)


@pytest.mark.parametrize(
    "broken",
    [
        _live_files_are_history,
        _null_is_the_group_0,
        _small_pieces_are_not_added,
        _rows_that_the_loop_leaves_are_lost,
        _rows_of_the_loop_are_not_counted,
    ],
)
def test_files_that_are_read_wrongly_are_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], None]
) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        check_files(tmp_path)


def check_memory(patch: pytest.MonkeyPatch) -> None:
    """What is held at most, with the rows that were read, however the threads follow each other."""
    count, rng = 2**18, np.random.default_rng(3)
    for width, few in ((1, 2**6), (1, 0), (2, 2**6), (4, 0)):
        columns = {str(i): rng.integers(0, 8, count) for i in range(width)}
        table = pa.table({**columns, "value": rng.random(count), "live": np.zeros(count, np.uint8)})
        patch.setattr(coded_rows, "FEW_GROUPS", few)
        tracemalloc.start()
        try:
            rows = CodedRows.of(table, width)
            assert len(rows.sums()) == len(rows.parts)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        source: Any = SimpleNamespace(group_columns=range(width), most_codes=8**width)
        assert count <= event_scan.most_held(peak + table.nbytes, source) * 3  # the estimate is no wild guess
        assert event_scan.most_held(peak + table.nbytes, source) <= count


@pytest.mark.parametrize("right", [True, False], ids=["as it is", "too few bytes"])
def test_rows_that_are_sorted_take_no_more_than_is_granted(
    monkeypatch: pytest.MonkeyPatch, right: bool
) -> None:
    monkeypatch.setattr(coded_rows, "shares_of", halves)
    if right:
        check_memory(monkeypatch)
        return
    monkeypatch.setattr(event_scan, "bytes_a_row", lambda _: 16)
    with pytest.raises(AssertionError):
        check_memory(monkeypatch)


def halves(sizes: Any, _: int = 1) -> list[tuple[int, int]]:
    return list(pairwise([0, len(sizes) // 2, len(sizes)]))


@pytest.mark.parametrize(("apart", "shares"), [(1, 2), (2**40, 1)])
def test_a_share_has_no_counts_of_many_groups(
    monkeypatch: pytest.MonkeyPatch, apart: int, shares: int
) -> None:
    """Each has a count for each code: the rows of groups that lie far apart are one share."""
    monkeypatch.setattr(coded_rows, "PIECE_ROWS", 3)
    monkeypatch.setattr(coded_rows, "shares_of", halves)
    table = pa.table({"group": np.arange(40) % 13 * apart, "value": np.arange(40.0)})
    rows = CodedRows.of(table, 1)
    assert shown(rows) == truth(table, 1)
    assert len(rows.rows) == shares


def drawn_numbers(rng: random.Random) -> pa.Table:
    count = rng.choice([0, 1, 40, 400])
    limit = rng.choice([3, 10**6])
    values = [rng.randrange(-limit, limit) for _ in range(count)]
    groups = [rng.choice([-3, *[5] * rng.choice([0, 1, 9]), 300]) for _ in range(count)]
    kind = rng.choice([pa.float64(), pa.int64()])
    return pa.table({"group": pa.array(groups, pa.int64()), "value": pa.array(values, kind)})


def check_ranks(patch: pytest.MonkeyPatch, spreads: tuple[float, ...] = (-9.0, 0.0, 3.0)) -> int:
    """Ranks of each group are those of a sorted list; how often the numbers from samples on sufficed."""
    rng, of_tails = random.Random(11), 0
    patch.setattr(coded_rows, "MANY", 1)
    patch.setattr(coded_rows, "TAILS", 1.0)
    for _ in range(100):
        patch.setattr(coded_rows, "PIECE_ROWS", rng.choice([30, 2**14]))
        few = rng.choice([0, 8])
        for module in (coded_rows, coded_pieces):
            patch.setattr(module, "FEWEST_CODES", few)
        patch.setattr(coded_rows, "STEP", rng.choice([1, 2, 9]))
        patch.setattr(number_parts, "SPREAD", rng.choice(spreads))
        table = drawn_numbers(rng)
        rows, known = CodedRows.of(table, 1), CodedRows.of(table, 1).parts
        share, others = rng.choice([1.0, 0.9]), rng.choice([[0], [0, 10**6], [0, 1]])
        ranks = [[rng.choice([*others, *[math.ceil(share * size)] * 4])] * 2 for size in known.sizes.tolist()]
        of_tails += rows._of_tails(np.array(ranks, np.int64).reshape(-1, 2)) is not None
        found = rows.same_values_at(np.array(ranks, np.int64).reshape(-1, 2))
        for group, (start, stop) in enumerate(pairwise(known.edges.tolist())):
            own, rank = np.sort(known.numbers[start:stop]), ranks[group][0]
            if 1 <= rank <= len(own):
                assert found.values[group].tolist() == [own[rank - 1]] * 2
                assert found.ranks_le[group].tolist() == [own.searchsorted(own[rank - 1], "right")] * 2
    return of_tails


def test_ranks_are_those_of_sorted_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where samples are too high: then the numbers from them on do not suffice, and are not used."""
    assert 20 < check_ranks(monkeypatch) < 80


def _a_row_of_each_tail_is_lost(patch: pytest.MonkeyPatch) -> None:
    right = CodedRows._some

    def some(rows: CodedRows, chosen: Callable[[Piece], Any]) -> CodedRows:
        return right(rows, lambda piece: own if isinstance(own := chosen(piece), slice) else own[:-1])

    patch.setattr(CodedRows, "_some", some)


def _rows_below_a_limit_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    right = CodedRows._some

    def some(rows: CodedRows, chosen: Any) -> CodedRows:
        found = right(rows, chosen)
        return replace(found, rows=rows.rows)

    patch.setattr(CodedRows, "_some", some)


@pytest.mark.parametrize("broken", [_a_row_of_each_tail_is_lost, _rows_below_a_limit_are_not_counted])
def test_wrong_ranks_are_caught(
    monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], None]
) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        check_ranks(monkeypatch)


@pytest.mark.parametrize("is_looped", [False, True])
def test_groups_have_their_rows(monkeypatch: pytest.MonkeyPatch, is_looped: bool) -> None:
    if is_looped:
        use_loop(monkeypatch)
    check(monkeypatch)


def _null_is_a_number(patch: pytest.MonkeyPatch) -> None:
    right = coded_rows.present
    patch.setattr(coded_rows, "present", lambda column: (right(column)[0], np.zeros(0, bool)))


def _all_shares_begin_at_the_same_place(patch: pytest.MonkeyPatch) -> None:
    right = np.cumsum

    def cumsum(rows: Any, axis: int | None = None) -> Any:
        return rows if rows.ndim == 2 else right(rows, axis)

    patch.setattr(np, "cumsum", cumsum)


def _only_the_first_share_is_added(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EachSums, "added", classmethod(lambda _, parts: parts[0]))


def _codes_of_few_digits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(coded_pieces, "stable_order", lambda codes: stable_order(codes.astype(np.int64) % 4))


def _wide_numbers_are_taken_for_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(coded_rows, "unique_codes", lambda numbers: (numbers[:1], np.zeros_like(numbers)))


def _only_the_last_piece_is_kept(patch: pytest.MonkeyPatch) -> None:
    right = coded_rows._share

    def share(*given: Any) -> Any:
        found = right(*given)
        pieces: list[Piece] = found.pieces[-1:]
        return found._replace(pieces=pieces)

    patch.setattr(coded_rows, "_share", share)


@pytest.mark.parametrize(
    "broken",
    [
        _null_is_a_number,
        _all_shares_begin_at_the_same_place,
        _only_the_first_share_is_added,
        _codes_of_few_digits,
        _wide_numbers_are_taken_for_one,
        _only_the_last_piece_is_kept,
    ],
)
def test_mistakes_are_caught(
    monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], None]
) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        check(monkeypatch)
