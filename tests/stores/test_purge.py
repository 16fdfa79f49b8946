"""The right to be forgotten in a store: no object has the key's text or hash, and open readers go on."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tests.stores.conftest import Place
from tests.stores.rows import HOW, START, check, rows
from tests.warehouse.file_contents import files_with, forms_of_keys, forms_of_text
from tidemark import query, stream, warehouse
from tidemark.warehouse.delta.store import Store

KEY = "/persons/ann"
HASHES = forms_of_keys(pa.array([KEY]))
TEXT = forms_of_text(KEY) | HASHES


def with_key(table: pa.Table, many: int) -> pa.Table:
    mine = pa.table([[START] * many, [KEY] * many, [1.0] * many], table.schema)
    return pa.concat_tables([table, mine])


def test_after_a_purge_no_object_of_the_store_has_the_rows(place: Place) -> None:
    how: dict[str, Any] = {"storage_options": place.options}
    warehouse.create(None, place.uri, ["ms"], **HOW, **how)
    given = [with_key(rows(number), 1 + number) for number in range(3)]
    for number in range(2):
        warehouse.load(None, place.uri, given[number], f"night-{number}", **how)
    stream.append(None, place.uri, given[2], source="web", batch=0, **how)
    filesystem, reader = (
        Store.from_uri(place.uri, place.options).filesystem(),
        query.open(place.uri, place.options),
    )
    check(reader, given)
    assert len(files_with(filesystem, TEXT)) > 5
    assert {path.split("/")[0] for path in files_with(filesystem, HASHES)} == {"key_marks", "ledger"}
    report = warehouse.delete(None, place.uri, f"page = '{KEY}'", purge=True, request="r", **how)
    assert report.certificate is not None
    assert (report.rows, report.certificate.stage) == (6, "left")
    left = [table.filter(pc.not_equal(table.column("page"), KEY)) for table in given]
    check(reader, left)
    (gone,) = warehouse.maintain(None, place.uri, grace="0s", **how).purged
    assert (gone.stage, gone.waits) == ("gone", ())
    assert files_with(filesystem, TEXT) == set()
    assert warehouse.certificates(place.uri, **how) == [gone]
    for wh in (reader, query.open(place.uri, place.options)):
        check(wh, left)
    warehouse.load(None, place.uri, rows(7), "night-7", **how)
    check(reader, [*left, rows(7)])
    assert warehouse.load(None, place.uri, given[0], "night-0", **how).outcome == "known"
    assert warehouse.verify(place.uri, **how).ok
