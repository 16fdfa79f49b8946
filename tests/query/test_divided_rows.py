"""Rows that are divided into groups of integers are those of a plain loop, however threads share them."""

from __future__ import annotations

import random
import tracemalloc
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidemark.query.reading.shares import each_share
from tidemark.query.scans import divided_rows, event_scan
from tidemark.query.scans.divided_rows import DividedRows
from tidemark.warehouse.columns.codes import stable_order

SPANS = [[7], [0, 1], [-3, 5, 300], range(1000), [-(2**63), 0, 2**63 - 1]]


def world(rng: random.Random) -> tuple[pa.Table, int]:
    """Columns of the group, the value, and often whether a row is live; and how many columns there are."""
    count, width = rng.choice([0, 1, 50, 400]), rng.choice([1, 2])
    spans = [list(rng.choice(SPANS)) for _ in range(width)]
    columns: dict[str, Any] = {
        f"group {i}": pa.array([rng.choice(span) for _ in range(count)], pa.int64())
        for i, span in enumerate(spans)
    }
    values = [None, *([] if rng.random() < 0.5 else [None] * 3), float("nan"), 0.5, 1.5, 2.5]
    if rng.random() < 0.3:
        values = values[-3:]
    columns["value"] = pa.array([rng.choice(values) for _ in range(count)], pa.float64())
    if rng.random() < 0.7:
        columns["live"] = pa.array([int(rng.random() < 0.4) for _ in range(count)], pa.uint8())
    table = pa.table(columns)
    cut = rng.randrange(count + 1)
    return pa.concat_tables([table[:cut], table[cut:]]), width


def truth(table: pa.Table, width: int) -> dict[tuple[int, ...], Any]:
    found: dict[tuple[int, ...], list[Any]] = defaultdict(lambda: [[], 0, 0])
    for row in table.to_pylist():
        *group, value, live = [*row.values(), 0][: width + 2]
        own = found[tuple(group)]
        if value is None:
            own[2] += 1
        else:
            own[0].append(repr(value))
            own[1] += live
    return {group: (sorted(values), m, nulls) for group, (values, m, nulls) in found.items()}


def shown(rows: DividedRows) -> dict[tuple[int, ...], Any]:
    values = np.split(rows.values, rows.edges[1:-1]) if len(rows.m) else []
    groups = zip(*(column.to_pylist() for column in rows.stored), strict=True)
    parts = zip(groups, values, rows.m.tolist(), rows.nulls.tolist(), strict=True)
    found = {group: (sorted(map(repr, own.tolist())), m, nulls) for group, own, m, nulls in parts}
    assert len(found) == len(rows.m)  # each group once
    return found


def check(patch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3)
    for _ in range(150):
        cuts = rng.choice([[], [0.5], [0.1, 0.6]])
        table, width = world(rng)
        edges = [0, *(int(cut * len(table)) for cut in cuts), len(table)]
        patch.setattr(divided_rows, "equal_shares", lambda _, edges=edges: list(pairwise(edges)))
        assert shown(divided_rows._sorted(table, width)) == truth(table, width)


def check_memory() -> None:
    """What is held at most, with the rows that were read, however the threads follow each other."""
    count, rng = 2**18, np.random.default_rng(3)
    for width in (1, 2, 4):
        columns = {str(i): rng.integers(0, 8, count) for i in range(width)}
        table = pa.table({**columns, "value": rng.random(count), "live": np.zeros(count, np.uint8)})
        tracemalloc.start()
        try:
            divided_rows._sorted(table, width)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        source: Any = SimpleNamespace(group_columns=range(width), most_codes=8**width)
        assert count <= event_scan.most_held(peak + table.nbytes, source) * 3  # the estimate is no wild guess
        assert event_scan.most_held(peak + table.nbytes, source) <= count


@pytest.mark.parametrize("right", [True, False], ids=["as it is", "as for lists"])
def test_rows_that_are_sorted_take_no_more_than_is_granted(
    monkeypatch: pytest.MonkeyPatch, right: bool
) -> None:
    monkeypatch.setattr(divided_rows, "equal_shares", lambda rows: [(0, rows // 2), (rows // 2, rows)])
    if right:
        check_memory()
        return
    monkeypatch.setattr(event_scan, "bytes_a_row", lambda _: 32)
    with pytest.raises(AssertionError):
        check_memory()


@pytest.mark.parametrize(("apart", "shares"), [(1, 2), (2**40, 1)])
def test_a_share_has_no_counts_of_many_groups(
    monkeypatch: pytest.MonkeyPatch, apart: int, shares: int
) -> None:
    """Each has a count for each code: the rows of groups that lie far apart are one share."""
    found = list[Any]()

    def noted(work: Any, some: Any) -> Any:
        found.extend(some)
        return each_share(work, some)

    monkeypatch.setattr(divided_rows, "equal_shares", lambda rows: [(0, rows // 2), (rows // 2, rows)])
    monkeypatch.setattr(divided_rows, "each_share", noted)
    table = pa.table({"group": np.arange(40) * apart, "value": np.arange(40.0)})
    assert shown(divided_rows._sorted(table, 1)) == truth(table, 1)
    assert len(found) == shares


def test_groups_have_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    check(monkeypatch)


def _null_counts_as_live(patch: pytest.MonkeyPatch) -> None:
    right = divided_rows.present
    patch.setattr(divided_rows, "present", lambda column: (right(column)[0], np.zeros(0, bool)))


def _shares_stand_one_after_the_other(patch: pytest.MonkeyPatch) -> None:
    right = divided_rows._joined

    def joined(groups: pa.Table, shares: Any) -> DividedRows:
        return right(groups, shares)._replace(values=np.concatenate([one.values for one in shares]))

    patch.setattr(divided_rows, "_joined", joined)


def _codes_of_few_digits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(divided_rows, "stable_order", lambda codes: stable_order(codes.astype(np.int64) % 256))


def _wide_numbers_are_taken_for_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(divided_rows, "unique_codes", lambda numbers: (numbers[:1], np.zeros_like(numbers)))


@pytest.mark.parametrize(
    "broken",
    [
        _null_counts_as_live,
        _shares_stand_one_after_the_other,
        _codes_of_few_digits,
        _wide_numbers_are_taken_for_one,
    ],
)
def test_mistakes_are_caught(
    monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], None]
) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        check(monkeypatch)
