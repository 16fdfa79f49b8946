"""Rows that leave a warehouse in a store: readers see each projection before or after, pinned ones before.

Of a delete few rows leave, which are kept; a correction writes runs again.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.killing import Killed, killer
from tests.stores.conftest import Place
from tests.stores.rows import HOW, START, check, rows
from tidemark import query, stream, warehouse

kill = killer("decided")


def without(tables: list[pa.Table], page: str) -> list[pa.Table]:
    return [table.filter(pc.not_equal(table.column("page"), page)) for table in tables]


def scanned(wh: Any) -> int:
    return int(wh.quantile(0.5, where="page <> '/9'").N)


def test_rows_are_corrected_and_deleted_by_keys_in_a_store(place: Place) -> None:
    how: dict[str, Any] = {"storage_options": place.options}
    warehouse.create(None, place.uri, ["ms"], **HOW, **how)
    tables = [rows(number) for number in range(3)]
    for number in range(2):
        warehouse.load(None, place.uri, tables[number], f"night-{number}", **how)
    stream.append(None, place.uri, tables[2], source="web", batch=0, **how)
    wh = query.open(place.uri, place.options)
    check(wh, tables)
    old = [table.filter(pc.equal(table.column("page"), "/3")) for table in tables]
    given: dict[str, Any] = {"batch": "fix", "before": pa.concat_tables(old), **how}
    with pytest.raises(Killed):
        warehouse.correct(None, place.uri, rows(7), progress=kill, **given)
    left = without(tables, "/3")
    check(wh, tables)  # the runs are not written again yet
    corrected = sum(table.num_rows for table in [*left, rows(7)])
    assert scanned(wh) == corrected
    assert warehouse.correct(None, place.uri, rows(7), **given).outcome == "known"
    for reader in (wh, query.open(place.uri, place.options)):
        check(reader, [*left, rows(7)])
        assert scanned(reader) == corrected
    keys = pa.table({"page": ["/4", "/none"]})
    assert warehouse.delete(None, place.uri, keys=keys, **how).outcome == "removed"
    check(wh, without([*left, rows(7)], "/4"))
    assert warehouse.verify(place.uri, **how).ok


def test_rows_leave_a_warehouse_in_a_store(place: Place) -> None:
    how: dict[str, Any] = {"storage_options": place.options}
    warehouse.create(None, place.uri, ["ms"], **HOW, **how)
    tables = [rows(number) for number in range(4)]
    for number in range(3):
        warehouse.load(None, place.uri, tables[number], f"night-{number}", **how)
    stream.append(None, place.uri, tables[3], source="web", batch=0, **how)
    wh = query.open(place.uri, place.options)
    pinned = query.open(place.uri, place.options).pinned()
    check(wh, tables)
    with pytest.raises(Killed):
        warehouse.delete(None, place.uri, "page = '/3'", progress=kill, **how)
    left = without(tables, "/3")
    check(wh, left)  # the rows are kept: all is seen at once
    moment = datetime.now(UTC)
    assert scanned(wh) == sum(table.num_rows for table in left)
    assert warehouse.verify(place.uri, **how).ok
    warehouse.load(None, place.uri, rows(5), "night-5", **how)
    for reader in (wh, query.open(place.uri, place.options)):
        check(reader, [*left, rows(5)])
        assert scanned(reader) == sum(table.num_rows for table in [*left, rows(5)])
    report = warehouse.unload(None, place.uri, "night-1", **how)
    assert (report.outcome, report.removal, report.rows) == ("removed", 1, left[1].num_rows)
    check(wh, [left[0], *left[2:], rows(5)])
    check(pinned, tables)
    check(query.open(place.uri, place.options, at=moment), left)
    assert scanned(pinned) == sum(table.num_rows for table in tables)
    lost = [table.num_rows - kept.num_rows for table, kept in zip(tables, left, strict=True)]
    steps = {one.batches[0][0]: one.rows_out for one in warehouse.history(place.uri, **how)}
    assert [steps["load:night-0"], steps["load:night-1"], steps["web"]] == [lost[0], 200, lost[3]]
    twice: dict[str, Any] = {"again": True, "refuse_overlap": True, **how}
    assert not warehouse.load(None, place.uri, tables[1], "night-1", **twice).overlaps
    with pytest.raises(warehouse.OverlappingBatch, match=f"200 rows, of which {200 - lost[0]} are left"):
        warehouse.load(None, place.uri, tables[0], "copy", **twice)
    assert warehouse.verify(place.uri, **how).ok
    before = START + timedelta(days=4)
    back = [table.filter(pc.equal(table.column("page"), "/3")) for table in tables]
    assert warehouse.restore(place.uri, removal=0, **how).rows == sum(table.num_rows for table in back)
    there = [left[0], *left[2:], rows(5), tables[1], *back]
    young = [table.filter(pc.greater_equal(table.column("at"), pa.scalar(before))) for table in there]
    old = sum(table.num_rows for table in there) - sum(table.num_rows for table in young)
    assert warehouse.expire(None, place.uri, before, **how).rows == old > 0
    for reader in (wh, query.open(place.uri, place.options)):
        check(reader, young)
        assert reader.info()["expired_before"] == before
    assert warehouse.verify(place.uri, **how).ok
    check(query.open(place.uri, place.options, at=moment), left)
