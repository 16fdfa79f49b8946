"""Batches streamed into a kept warehouse: ranges of the cascade join rows of then and rows of now."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.compatibility import rows
from tests.compatibility.kept import unpacked
from tests.query.answers import several
from tidemark import query
from tidemark.sketches import ECM
from tidemark.warehouse import verify
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, LEDGER
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.ingest.event_files import WriteRows, WrittenFile
from tidemark.warehouse.ingest.row_filter import RowFilter
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.ledger.batch_summaries import by_tick
from tidemark.warehouse.settings.option_checks import SYSTEM_COLUMNS
from tidemark.warehouse.settings.options import read_options

KEY_EPS = 0.05
NEW = range(rows.LIVE.stop, 96)  # 64 to 95 get a range


def append(store: Store, number: int, given: list[tuple[Any, ...]]) -> None:
    """One batch of `web` as the tasks and the driver write it, in this process."""
    events, options = tables.open_table(store, EVENTS), read_options(store)
    batch = BatchRange("web", number, number)
    schema, eps = pa.schema(events.schema()), ledger_table.level_eps(options.eps, 0)
    fields = list(schema)[len(SYSTEM_COLUMNS) :]
    columns = [pa.array(values, field.type) for *values, field in zip(*given, fields, strict=True)]
    work = WriteRows(store, schema, batch, options, 0, RowFilter(), eps)
    given_rows = pa.RecordBatch.from_arrays(columns, [field.name for field in fields])
    made = [one for one in work(iter([given_rows])) if isinstance(one, WrittenFile)]
    files = [one.file.action() for one in made]
    assert Race(store, EVENTS).commit_numbered("web", number, files)
    found = by_tick([part for one in made for part in one.summaries], eps)
    assert ledger_table.append_batch(store, options.eps, "web", number, found)


@pytest.mark.slow
def test_new_batches_merge_with_old_ones_and_what_they_keep_is_told(tmp_path: Path) -> None:
    store = Store.from_uri(unpacked(tmp_path, "timed"))
    batches = rows.timed_batches()
    for number in NEW:
        batches["web", number] = rows.timed_rows(f"web-{number}", 12)
        append(store, number, batches["web", number])
    wide = BatchRange("web", 64, 95)
    held = ledger_table.ranges_by_file(store, tables.open_table(store, LEDGER))
    merged = ledger_table.read_rows(store, held, [wide]).column("keys").to_pylist()
    said = [ECM.from_bytes(one["sketch"]).point_eps for one in merged]
    assert len(said) == 7  # six days, and rows without a time
    assert max(said) <= KEY_EPS  # old rows below one level of the cascade have room enough
    report = verify(store.uri)
    assert report.ok, str(report)
    true = Counter(row[1] for some in batches.values() for row in some if row[1] is not None)
    answers = several(query.open(store.uri).frequency(list(true), mode="exact"))
    assert [one.count for one in answers] == list(true.values())
    about = several(query.open(store.uri).frequency(list(true), last="30h"))
    assert {one.eps for one in about} == {KEY_EPS}
    live = Counter(
        row[1]
        for (source, number), some in batches.items()
        if source == "partner" or (source == "web" and number not in rows.LOADED)
        for row in some
        if row[1] is not None
    )
    for one in several(query.open(store.uri).frequency(list(true))):
        assert one.lo <= true[one.value] <= one.hi
        assert one.hi - one.lo <= 2 * KEY_EPS * live.total()
