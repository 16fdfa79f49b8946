"""Values by group: a projection whose rows are loaded, streamed, merged, maintained and verified."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from tests.soak import HAS_ALL
from tests.warehouse.hereloader import Loader, rows_of
from tidemark import warehouse
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.integrity.digests import columns_by_name
from tidemark.warehouse.projections import group_rows
from tidemark.warehouse.projections.group_rows import GroupRows
from tidemark.warehouse.projections.sorted_groups import SortedGroups
from tidemark.warehouse.runs.projection import Projection
from tidemark.warehouse.runs.run_files import read_blocks
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.sizes import Tuning

TINY = Tuning(sort_rows=50, slice_rows=40, file_rows=(40, 80), block_rows=8, span_cells=12, fan=3)
TYPES = {"k": "string", "n": "long", "d": "double", "x": "double", "t": "timestamp", "b": "binary"}
ARROW = {"k": pa.string(), "n": pa.int64(), "d": pa.float64(), "x": pa.float64(), "b": pa.binary()}
DRAWN: dict[str, st.SearchStrategy[Any]] = {
    "k": st.sampled_from(["", "a", "ab", "b", "\U0010ffff", "é" * 40]),
    "n": st.sampled_from([-(2**63), -1, 0, 1, 2**53 + 1, 2**63 - 1]),
    "d": st.sampled_from([-math.inf, -0.0, 0.0, 0.5, math.nan, math.inf]),
    "x": st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 2.5, math.inf, math.nan]),
    "b": st.sampled_from([b"", b"\x00", b"\xff" * 40]),
}

Row = tuple[Any, ...]


def plain(row: Sequence[Any]) -> Row:
    """A row whose NaN equals itself, and whose zeros are one."""
    return tuple("NaN" if v != v else v + 0 if isinstance(v, float) else v for v in row)  # noqa: PLR0124


def rows_in(projection: SortedGroups, rows: GroupRows) -> list[Row]:
    """The rows as values of the columns."""
    found = []
    for i in range(len(rows)):
        names = rows.group(int(rows.codes[i]))
        group = [key.value_of(name) for key, name in zip(projection.keys, names, strict=True)]
        kind = int(rows.kinds[i])
        value = [rows.values[i].item(), math.nan, None][kind]
        found.append(plain([*group, value, int(rows.ticks[i])]))
    return found


@st.composite
def worlds(draw: st.DrawFn) -> tuple[SortedGroups, list[Row]]:
    columns = draw(st.lists(st.sampled_from(["k", "n", "d", "b"]), min_size=1, max_size=3, unique=True))
    measure = draw(st.sampled_from(["x", "n"]))
    values = [st.none() | DRAWN[name] for name in [*columns, measure]]
    rows = draw(st.lists(st.tuples(*values, st.integers(-3, 3)), max_size=60))
    tuning = Tuning(block_rows=draw(st.integers(1, 9)), key_block_bytes=draw(st.sampled_from([1, 90, 2**20])))
    keys = tuple(Key(name, TYPES[name]) for name in columns)
    return SortedGroups(keys, Measure(measure, TYPES[measure]), tuning), rows


def table_of(projection: SortedGroups, rows: list[Row]) -> pa.Table:
    """The rows as tasks read them from `events`: the measure may be a column of the group, too."""
    names = [*(key.name for key in projection.keys), projection.measure.name]
    columns = {name: pa.array([row[i] for row in rows], ARROW[name]) for i, name in enumerate(names)}
    return pa.table({**columns, "_tick": pa.array([row[-1] for row in rows], pa.int64())})


def expected(projection: SortedGroups, table: pa.Table) -> list[Row]:
    """The rows of groups in their order: names as stored, numbers before NaN before NULL."""
    names = [key.name for key in projection.keys]
    found = []
    for row in table.to_pylist():
        group = [row[name] for name in names]
        if None in group:
            continue
        value = row[projection.measure.name]
        kind = 2 if value is None else 1 if value != value else 0  # noqa: PLR0124  NaN
        order = [key.name_of(one) for key, one in zip(projection.keys, group, strict=True)]
        found.append(((*order, kind, 0 if kind else value), plain([*group, value, row["_tick"]])))
    return [row for _, row in sorted(found, key=lambda one: one[0])]


def same(found: list[Row], wanted: list[Row]) -> None:
    """Equal, where rows of one group and value may come in any order of their ticks."""
    assert [row[:-1] for row in found] == [row[:-1] for row in wanted]
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))


@given(worlds(), st.data())
def test_rows_are_decoded_sorted_merged_and_stored(world: tuple[SortedGroups, list[Row]], data: Any) -> None:
    projection, rows = world
    table = table_of(projection, rows)
    wanted = expected(projection, table)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    edges = [0, *cuts, len(rows)]
    parts = [projection.decode(table.slice(a, b - a)) for a, b in pairwise(edges)]
    merged = projection.sort([part for part, _ in parts])
    same(rows_in(projection, merged), wanted)
    in_parts = projection.merge([projection.sort([part]) for part, _ in parts])
    same(rows_in(projection, in_parts), wanted)
    assert sum(totals.rows for _, totals in parts) == len(rows)
    assert sum(int(totals.nulls.sum()) for _, totals in parts) == len(rows) - len(wanted)
    assert sum(projection.digest(part) for part, _ in parts) % 2**64 == projection.digest(merged)
    assert projection.ascends(merged)
    found: list[Row] = []
    for block, blocks in projection.blocks(iter([merged]), None):
        for start, stop in pairwise(blocks):
            (part,) = projection.from_stored(columns_by_name(projection.to_stored(block.part(start, stop))))
            assert 0 < len(part) <= projection.tuning.block_rows
            assert [part.sort_key(i) for i in range(len(part))] == [
                block.sort_key(i) for i in range(start, stop)
            ]
            found += rows_in(projection, part)
    assert found == rows_in(projection, merged)
    for name in {row[:-2] for row in wanted}:
        group = tuple(
            key.name_of(math.nan if value == "NaN" else value)
            for key, value in zip(projection.keys, name, strict=True)
        )
        start, stop = merged.range_of(group)  # type: ignore[arg-type]  # names
        assert stop - start == sum(row[:-2] == name for row in wanted)


def groups_of(options: Options) -> tuple[SortedGroups, ...]:
    """A measure by one column, and the other by two, of which it is one."""
    types = dict(options.columns)
    groups = [tuple(Key(name, types[name]) for name in names) for names in (["k"], ["n", "k"])]
    return tuple(
        SortedGroups(keys, measure, options.tuning)
        for keys, measure in zip(groups, options.measures, strict=True)
    )


def with_groups(patch: pytest.MonkeyPatch) -> None:
    """Warehouses have groups, too."""
    usual = Options.projections.fget  # type: ignore[attr-defined]  # it is a property

    def all_of(options: Options) -> tuple[Projection[Any], ...]:
        return (*usual(options), *groups_of(options))

    patch.setattr(Options, "projections", property(all_of))


@pytest.fixture
def grouped(monkeypatch: pytest.MonkeyPatch) -> None:
    with_groups(monkeypatch)


@pytest.fixture
def loader(grouped: None, tmp_path: Path) -> Loader:  # noqa: ARG001
    return Loader.create(tmp_path / "w", TINY)


def stored(uri: str, projection: SortedGroups) -> list[Row]:
    """All rows of a projection; each run in order."""
    snapshot = warehouse.open_snapshot(uri)
    disk = snapshot.store.filesystem()
    found: list[Row] = []
    for marks in snapshot.current().marks(projection):
        keys = [
            part.sort_key(i)
            for file in marks.files
            for part in read_blocks(disk, projection.runs_table, file, projection)
            for i in range(len(part))
        ]
        assert keys == sorted(keys)
        found += [
            row
            for file in marks.files
            for part in read_blocks(disk, projection.runs_table, file, projection)
            for row in rows_in(projection, part)
        ]
    return found


def check(uri: str) -> None:
    """Nothing is live; each projection has the rows of `events`; every check holds."""
    events = DeltaTable(f"{uri}/events").to_pyarrow_table()
    projections = groups_of(warehouse.open_snapshot(uri).options)
    for projection in projections:
        wanted = expected(projection, events)
        assert sorted(map(repr, stored(uri, projection))) == sorted(map(repr, wanted))
    report = warehouse.verify(uri)
    assert report.ok, str(report)
    names = [one.name for one in report.checks]
    assert all(sum(name.startswith(f"{one.name}: ") for name in names) == 3 for one in projections)


def with_null_keys(seed: int) -> Iterator[pa.Table]:
    """Rows of the loader, some of them of no group."""
    random = np.random.default_rng(seed)
    for number in range(4 if HAS_ALL else 3):  # the third makes runs of the second level
        rows = rows_of(number)
        for name in ("k", "n"):
            column = rows.column(name).combine_chunks()
            masked = pa.array(column.to_pylist(), column.type, mask=random.random(len(column)) < 0.2)
            rows = rows.set_column(rows.schema.get_field_index(name), name, masked)
        yield rows


def live(loader: Loader, seed: int) -> set[int]:
    """Loads, streams, merges and checks after each round; returns the levels that held runs."""
    levels = set()
    for rows in with_null_keys(seed):
        loader.load(rows)
        loader.round()
        check(loader.uri)
        snapshot = warehouse.open_snapshot(loader.uri)
        levels |= {
            run.run.level for one in groups_of(snapshot.options) for run in snapshot.current().marks(one)
        }
    return levels


@pytest.mark.slow
def test_they_are_loaded_streamed_merged_and_maintained(loader: Loader) -> None:
    assert len(live(loader, 1)) > 1


@pytest.mark.slow
def test_a_warehouse_from_before_them_catches_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = Loader.create(tmp_path / "w")
    for _ in range(3):
        old.load()
    old.stream()
    with_groups(monkeypatch)
    old.tuning = TINY
    old.load_live()
    check(old.uri)


def check_long_slices(rng: np.random.Generator) -> None:
    """Groups of many rows, which are sorted slice by slice, have the order of a sort by all columns."""
    rows = 8 * group_rows._LEAST_SLICE
    for ticks in (np.full(rows, 7), rng.integers(-3, 3, rows)):
        for values in (rng.normal(size=rows).round(1), rng.integers(-9, 9, rows)):
            codes, kinds = rng.integers(0, 2, rows), np.where(rng.random(rows) < 0.01, 2, 0)
            stored = np.where(kinds == 0, values, values.dtype.type(0))
            found = group_rows.sort_rows([GroupRows((np.array([5, 9]),), codes, stored, kinds, ticks)])
            columns = (found.codes, found.kinds, found.values, found.ticks)
            wanted = sorted(zip(*(one.tolist() for one in (codes, kinds, stored, ticks)), strict=True))
            of_rows = [*zip(*(one.tolist() for one in columns), strict=True)]
            assert sorted(of_rows) == wanted
            assert [row[:3] for row in of_rows] == [row[:3] for row in wanted]


def test_long_slices_are_sorted_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """And where a tick stays behind while its value moves, that is caught."""
    check_long_slices(np.random.default_rng(1))
    usual = group_rows._sorted_slices
    monkeypatch.setattr(
        group_rows,
        "_sorted_slices",
        lambda values, order, edges, **_: usual(values, order, edges, keep_order=False),
    )
    with pytest.raises(AssertionError):
        check_long_slices(np.random.default_rng(1))


BROKEN = ["a row of no group", "the order of kinds", "a cut inside a group"]


@pytest.mark.slow
@pytest.mark.parametrize("broken", BROKEN)
def test_what_is_broken_is_caught(broken: str, loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = group_rows.unsorted_rows
    if broken == "a row of no group":

        def keeps_nulls(columns: Any, measure: Any, ticks: Any) -> GroupRows:
            for column in columns:
                column.null[:1] = False
            return usual(columns, measure, ticks)

        monkeypatch.setattr("tidemark.warehouse.projections.sorted_groups.unsorted_rows", keeps_nulls)
    elif broken == "the order of kinds":
        monkeypatch.setattr(group_rows, "NAN", group_rows.NULL)
        monkeypatch.setattr(group_rows, "NULL", 1)
    else:
        monkeypatch.setattr(
            GroupRows, "sort_key", lambda rows, i: (*rows.group(int(rows.codes[i])), 0, -math.inf)
        )
    with pytest.raises((AssertionError, warehouse.DamagedWarehouse)):
        live(loader, 2)
