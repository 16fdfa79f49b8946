"""A summary of a batch is the same however its rows are cut; a killed append goes on when it comes again.

Rows come in record batches, row groups and Spark's partitions: some of them empty, some without a key.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.query.answers import several, single
from tidemark import query, stream, warehouse
from tidemark.warehouse.columns.keys import KeyColumn, name_at, unify_names
from tidemark.warehouse.events.reader import decode_rows
from tidemark.warehouse.ledger import batch_summaries, ledger_table
from tidemark.warehouse.ledger.batch_summaries import TickSummarizer, TickSummary, by_tick
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.sizes import Tuning

Row = tuple[Any, ...]
NAMES = ("x", "text", "blob", "number", "ratio", "flag")
SCHEMA = pa.schema(
    [
        ("x", pa.float64()),
        ("text", pa.string()),
        ("blob", pa.binary()),
        ("number", pa.int64()),
        ("ratio", pa.float64()),
        ("flag", pa.bool_()),
    ]
)
KEYS = (("blob",), ("number",), ("ratio",), ("number", "text"), ("blob", "flag"), ("ratio", "number"))
OPTIONS = Options(
    ("x",), None, None, 0.001, 10, 0,
    columns=(
        ("x", "double"),
        ("text", "string"),
        ("blob", "binary"),
        ("number", "long"),
        ("ratio", "double"),
        ("flag", "boolean"),
    ),
    own_keys=(("text",), *KEYS[:3]),
    group_names=KEYS[3:],
    tuning=Tuning(summary_rows=7, summary_parts=2),
)  # fmt: skip


def drawn_rows() -> st.SearchStrategy[list[Row]]:
    """Stretches of rows: in each some columns are NULL throughout, as where the file of others begins."""
    values = (
        st.sampled_from([1.0, 2.5, -0.0, math.nan]),
        st.sampled_from(["", "a", "a\x00", "é"]),
        st.sampled_from([b"", b"\xff", b"\x00"]),
        st.sampled_from([0, -1, 2**63 - 1]),
        st.sampled_from([0.5, 0.0, math.inf]),
        st.booleans(),
    )
    filled = st.tuples(*(st.one_of(st.none(), value) for value in values))
    hidden = st.tuples(*(st.booleans() for _ in NAMES))
    stretch = st.tuples(hidden, st.integers(0, 1), st.lists(filled, max_size=8))
    return st.lists(stretch, max_size=4).map(
        lambda stretches: [
            (tick, *(None if hide else value for hide, value in zip(hides, row, strict=True)))
            for hides, tick, rows in stretches
            for row in rows
        ]
    )


def pieces_of(rows: list[Row], cuts: Sequence[int], *, coded: bool = False) -> list[pa.Table]:
    """The rows as tables that end at these cuts; `coded` columns of text are dictionaries, as in files."""
    ends = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    whole = pa.Table.from_arrays(
        [pa.array([row[i] for row in rows], kind) for i, kind in enumerate([pa.int64(), *SCHEMA.types])],
        names=["_tick", *NAMES],
    )
    pieces = [whole.slice(start, stop - start).combine_chunks() for start, stop in pairwise(ends)]
    if coded:
        for name in ("text", "blob"):
            place = SCHEMA.get_field_index(name) + 1
            pieces = [
                piece.set_column(place, name, piece.column(name).dictionary_encode()) for piece in pieces
            ]
    return pieces


def summaries_of(pieces: Sequence[pa.Table], tasks: int) -> list[TickSummary]:
    """The summaries that so many tasks make of the pieces, each of every so many-th one."""
    parts: list[TickSummary] = []
    for task in range(tasks):
        summarizer = TickSummarizer(OPTIONS, 0.001)
        for piece in pieces[task::tasks]:
            summarizer.add(decode_rows(piece, summarizer.columns, OPTIONS.keys, OPTIONS.companions))
        parts += summarizer.finish()
    return by_tick(parts, 0.001)


def check_summaries(summaries: list[TickSummary], rows: list[Row]) -> None:
    """Equal to plain counts of the rows: so few rows are listed exactly."""
    if not rows:
        assert [(summary.rows, summary.measures) for summary in summaries] == [(0, ())]
        return
    by = {tick: [row[1:] for row in rows if row[0] == tick] for tick in sorted({row[0] for row in rows})}
    assert {summary.tick: summary.rows for summary in summaries} == {t: len(held) for t, held in by.items()}
    for summary in summaries:
        held = by[summary.tick]
        numbers = sorted(row[0] + 0.0 for row in held if row[0] is not None and row[0] == row[0])
        (measure,) = summary.measures
        assert measure.nulls == sum(row[0] is None for row in held)
        assert measure.nans == len(held) - measure.nulls - len(numbers)
        assert measure.sketch.n == len(numbers)
        if numbers:
            least, most = measure.sketch.rank_le(numbers)
            assert least.tolist() == most.tolist() == [bisect_right(numbers, number) for number in numbers]
        for counts in OPTIONS.key_counts:
            places = [NAMES.index(name) for name in counts.key.columns]
            values = [tuple(row[place] for place in places) for row in held]
            keyed = [value for value in values if None not in value]
            truth = Counter(counts.key.name_of(value if len(value) > 1 else value[0]) for value in keyed)
            found = summary.keys[counts.ledger_field]
            listed = {name_at(found.names, i): int(count) for i, count in enumerate(found.known)}
            assert (found.nulls, found.rows, found.floor) == (len(held) - len(keyed), len(keyed), 1)
            assert listed == truth
            assert not found.slack.any()


ROWS_WITH_GAPS: list[Row] = [  # the second stretch has no key of any kind, the last one no text
    *((0, float(i), "ab"[i % 2], b"c", i % 3, 0.5, True) for i in range(6)),
    *((0, float(i), None, None, None, None, None) for i in range(6)),
    *((1, float(i), None, b"d", 7, None, False) for i in range(3)),
]


@given(
    rows=drawn_rows(),
    cuts=st.lists(st.integers(0, 32), max_size=6),
    tasks=st.integers(1, 3),
    coded=st.booleans(),
)
@settings(max_examples=60)
def test_a_summary_is_the_same_however_its_rows_are_cut(
    rows: list[Row], cuts: list[int], tasks: int, coded: bool
) -> None:
    check_summaries(summaries_of(pieces_of(rows, cuts, coded=coded), tasks), rows)


def plain(table: pa.Table) -> pa.Table:
    return table


def in_slices(table: pa.Table) -> pa.Table:
    """Each column is a slice in the middle of a longer one."""
    return pa.concat_tables([table] * 3).combine_chunks().slice(len(table), len(table))


def in_dictionaries(table: pa.Table) -> pa.Table:
    """Texts are dictionaries; NULL is one of their values, and some values have no row."""
    for name in ("text", "blob"):
        values = table.column(name).to_pylist()
        kind = table.schema.field(name).type
        words = pa.array([None, *dict.fromkeys(v for v in values if v is not None), *[None]], kind)
        codes = pa.array([words.to_pylist().index(value) for value in values], pa.int8())
        column = pa.DictionaryArray.from_arrays(codes, words)
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


def in_large_types(table: pa.Table) -> pa.Table:
    for name, kind in (("text", pa.large_string()), ("blob", pa.binary_view())):
        column = table.column(name).cast(kind)
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


def given_rows(form: Callable[[pa.Table], pa.Table], cuts: Sequence[int]) -> pa.RecordBatchReader:
    """ROWS_WITH_GAPS in record batches that end at the cuts, among them empty ones."""
    pieces = [form(piece.drop_columns(["_tick"])) for piece in pieces_of(ROWS_WITH_GAPS, cuts)]
    batches = [batch for piece in pieces for batch in piece.to_batches() or [empty_batch(piece.schema)]]
    return pa.RecordBatchReader.from_batches(pieces[0].schema, batches)


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], kind) for kind in schema.types], schema=schema)


def new_warehouse(folder: Path) -> Path:
    warehouse.create(None, folder / "w", ["x"], key="text", keys=KEYS[:3], groups=KEYS[3:], schema=SCHEMA)
    return folder / "w"


def check_warehouse(uri: Path, times: int) -> None:
    """Its answers are those of ROWS_WITH_GAPS, which came so often, live and in history."""
    for _ in ("live", "history"):
        wh = query.open(uri)
        rows = single(wh.quantile(1)).N
        assert rows == len(ROWS_WITH_GAPS) * times
        assert [answer.value for answer in wh.quantile([0, 0.5, 1], mode="exact")] == [0.0, 2.0, 5.0]
        for key, at in (("text", 2), ("blob", 3), ("number", 4), ("ratio", 5)):
            truth = Counter(row[at] for row in ROWS_WITH_GAPS if row[at] is not None)
            answers = several(wh.frequency(list(truth), key=key))
            assert [answer.count for answer in answers] == [count * times for count in truth.values()]
        assert single(wh.frequency((7, "a"), key=["number", "text"])).count == 0
        warehouse.load(None, uri)
    report = warehouse.verify(uri)
    assert report.ok, report


@pytest.mark.parametrize("form", [plain, in_slices, in_dictionaries, in_large_types])
def test_record_batches_without_a_key_or_without_rows_are_taken(
    form: Callable[[pa.Table], pa.Table], tmp_path: Path
) -> None:
    uri = new_warehouse(tmp_path)
    for number, cuts in enumerate(([6, 6, 12], [0, 0, 3, 9, 15])):
        assert stream.append(None, uri, given_rows(form, cuts), source="s", batch=number)
    check_warehouse(uri, times=2)


def kill_before_the_ledger(patch: pytest.MonkeyPatch, append: Callable[[], Any]) -> None:
    """Ends the append as a kill between its two commits does."""

    def killed(*_: Any, **__: Any) -> bool:
        raise KeyboardInterrupt

    with patch.context() as here:
        here.setattr(ledger_table, "append_batch", killed)
        with pytest.raises(KeyboardInterrupt):
            append()


def test_a_killed_append_goes_on_whatever_its_row_groups_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row groups of six rows: one has no key at all. The batch itself goes on, or its source's next one."""
    uri = new_warehouse(tmp_path)
    groups = Tuning(group_rows=6)

    def append(number: int) -> bool:
        return stream.append(None, uri, given_rows(plain, [6]), source="s", batch=number, tuning=groups)

    for number in (0, 2):
        kill_before_the_ledger(monkeypatch, lambda number=number: append(number))  # type: ignore[misc]
        assert append(number)
        kill_before_the_ledger(monkeypatch, lambda number=number: append(number + 1))  # type: ignore[misc]
    assert append(4)
    check_warehouse(uri, times=5)


def test_a_killed_batch_without_rows_goes_on_before_the_columns_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse.create(None, tmp_path, ["x"], key="text", keys=KEYS[:3], groups=KEYS[3:])
    nothing = SCHEMA.empty_table()
    for batch in (0, 1):
        kill_before_the_ledger(
            monkeypatch,
            lambda batch=batch: stream.append(None, tmp_path, nothing, source="s", batch=batch),  # type: ignore[misc]
        )
        kill_before_the_ledger(
            monkeypatch,
            lambda batch=batch: stream.append(None, tmp_path, nothing, source="z", batch=batch),  # type: ignore[misc]
        )
    assert stream.append(None, tmp_path, nothing, source="s", batch=1)
    assert stream.append(None, tmp_path, given_rows(plain, [6]), source="z", batch=2)
    check_warehouse(tmp_path, times=1)


def test_a_partition_of_spark_without_a_key_or_without_rows_is_taken(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = new_warehouse(tmp_path)
    context = spark.sparkContext
    rows = [row[1:] for row in ROWS_WITH_GAPS]
    parts = context.parallelize([rows[:6], [], rows[6:12], rows[12:]], 4).flatMap(lambda part: part)
    ddl = "x double, text string, blob binary, number bigint, ratio double, flag boolean"
    frame = spark.createDataFrame(parts, ddl)
    assert frame.rdd.getNumPartitions() == 4
    assert stream.append(spark, uri, frame, source="s", batch=0)
    kill_before_the_ledger(monkeypatch, lambda: stream.append(spark, uri, frame, source="s", batch=1))
    assert stream.append(spark, uri, frame, source="s", batch=1)
    check_warehouse(uri, times=2)


def codes_of_rows_without_a_key_are_looked_up(patch: pytest.MonkeyPatch) -> None:
    right = batch_summaries._concatenate

    def wrong(pieces: Any) -> Any:
        for parts in zip(*(piece.keys for piece in pieces), strict=True):
            _, places = unify_names([part.names for part in parts])
            for part, place in zip(parts, places, strict=True):
                place[np.arange(len(part.null)) if part.codes is None else part.codes]
        return right(pieces)

    patch.setattr(batch_summaries, "_concatenate", wrong)


def a_row_without_a_key_counts_for_the_first_name(patch: pytest.MonkeyPatch) -> None:
    right = batch_summaries._concatenate

    def wrong(pieces: Any) -> Any:
        whole = right(pieces)
        keys = [KeyColumn(k.names, k.codes, k.null & (len(k.names) == 0)) for k in whole.keys]
        return type(whole)(whole.ticks, whole.columns, tuple(keys), whole.companions)

    patch.setattr(batch_summaries, "_concatenate", wrong)


@pytest.mark.parametrize(
    "mistake", [codes_of_rows_without_a_key_are_looked_up, a_row_without_a_key_counts_for_the_first_name]
)
def test_mistakes_in_joining_pieces_are_caught(
    mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = pieces_of(ROWS_WITH_GAPS, [6, 12])
    check_summaries(summaries_of(pieces, 1), ROWS_WITH_GAPS)
    mistake(monkeypatch)
    with pytest.raises((IndexError, AssertionError)):
        check_summaries(summaries_of(pieces, 1), ROWS_WITH_GAPS)
