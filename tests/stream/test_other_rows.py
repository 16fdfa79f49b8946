"""A number of a stream that comes again has the same rows, or is refused and changes nothing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.stream.played import Crash, crash
from tests.warehouse.disk import rows_of, tables_of
from tidemark import query, stream, warehouse
from tidemark.warehouse import BatchMismatch, InputError
from tidemark.warehouse.ingest import same_rows
from tidemark.warehouse.integrity import digests
from tidemark.warehouse.ledger import ledger_table

SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", tz="UTC")),
        ("x", pa.float64()),
        ("k", pa.string()),
        ("beside", pa.list_(pa.float64())),
    ]
)
LATE = 2**60  # a time after the year 9999: rejected
Row = tuple[int | None, float | None, str | None, list[float] | None]


def table(rows: list[Row]) -> pa.Table:
    columns = [[row[place] for row in rows] for place in range(len(SCHEMA))]
    return pa.Table.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA
    )


def append(uri: Path, number: int, rows: list[Row]) -> bool:
    return stream.append(None, uri, table(rows), source="s", batch=number)


def create(uri: Path, **options: Any) -> Path:
    warehouse.create(None, uri, ["x"], key="k", time="at", grace="0 s", **options)
    return uri


@pytest.fixture
def uri(tmp_path: Path) -> Path:
    return create(tmp_path / "w", schema=SCHEMA)


def count(uri: Path) -> int:
    try:
        return query.open(uri).quantile(1).N
    except query.EmptyWindow:
        return 0


def append_and_crash(uri: Path, number: int, rows: list[Row]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_table, "append_batch", crash)
        with pytest.raises(Crash):
            append(uri, number, rows)


def told(rows: list[Row]) -> Counter[str]:
    """The rows in any order; -0.0 is 0.0, and every NaN one value."""

    def plain(value: Any) -> Any:
        return value + 0.0 if isinstance(value, float) else value

    return Counter(
        repr([[plain(v) for v in one] if isinstance(one, list) else plain(one) for one in row])
        for row in rows
    )


def drawn_rows(random: Random) -> list[Row]:
    """At most three rows of few values, so that batches are often equal, or nearly so."""
    return [
        (
            random.choice([0, 0, None, LATE]),
            random.choice([0.0, -0.0, math.nan]),
            random.choice(["a", "a", None]),
            random.choice([None, [0.0], [-0.0, math.nan]]),
        )
        for _ in range(random.choice([0, 1, 1, 2, 3]))
    ]


@pytest.mark.parametrize("seed", range(3))
def test_a_number_that_comes_again_has_the_same_rows_or_is_refused(uri: Path, seed: int) -> None:
    """Against a plain list: new numbers, numbers again, crashes before the ledger, loads, maintenance."""
    random, stored = Random(seed), dict[int, list[Row]]()
    for _ in range(30):
        rows, newest = drawn_rows(random), max(stored, default=-1)
        if not stored or random.random() < 0.3:
            if stored:
                append(uri, newest, stored[newest])  # a crash may have left it half-way
            (append_and_crash if random.random() < 0.4 else append)(uri, newest + 1, rows)
            stored[newest + 1] = rows
            continue
        number = random.choice([newest, random.choice(list(stored))])
        if random.random() < 0.5:
            rows = random.sample(stored[number], len(stored[number]))
        before = tables_of(uri)
        if told(rows) == told(stored[number]):
            append(uri, number, rows)
            assert not append(uri, number, rows)
        elif told(rows) != told([row for row in stored[number] if row[0] != LATE]):
            with pytest.raises(
                BatchMismatch, match=f"batch {number} of 's' was appended before with other rows"
            ):
                append(uri, number, rows)
            assert tables_of(uri) == before
        if random.random() < 0.1:
            warehouse.load(None, uri)
    append(uri, max(stored) + 1, [])
    assert count(uri) == sum(row[0] != LATE for rows in stored.values() for row in rows)
    kept = sorted(rows_of(uri, "rejected").column("batch").to_pylist())
    assert kept == sorted(number for number, rows in stored.items() for row in rows if row[0] == LATE)
    assert warehouse.verify(uri).ok


ONE: list[Row] = [(0, 1.0, "a", None), (0, 2.0, None, None)]
OTHERS: dict[str, list[Row]] = {
    "a value": [(0, 1.0, "a", None), (0, 3.0, None, None)],
    "a column beside": [(0, 1.0, "a", [1.0]), (0, 2.0, None, None)],
    "a row less": ONE[:1],
    "a row more": [*ONE, ONE[0]],
    "none": [],
    "a rejected row more": [*ONE, (LATE, 1.0, "a", None)],
}


def refuse(uri: Path, number: int, rows: list[Row], match: str) -> None:
    before = tables_of(uri)
    with pytest.raises(InputError, match=match):
        append(uri, number, rows)
    assert tables_of(uri) == before


@pytest.mark.parametrize("first", [ONE, [], [(LATE, 1.0, "a", None)], [*ONE, (LATE, 5.0, None, None)]])
@pytest.mark.parametrize("crashed", [False, True])
def test_other_rows_are_refused_after_batches_of_each_kind(
    uri: Path, first: list[Row], crashed: bool
) -> None:
    """With rows, without, with rejected ones only, with both; whole, or stopped before the ledger."""
    (append_and_crash if crashed else append)(uri, 0, first)
    for rows in OTHERS.values():
        if told(rows) not in (told(first), told([row for row in first if row[0] != LATE])):
            refuse(
                uri,
                0,
                rows,
                r"batch 0 of 's' was appended before with other rows: \d rows are stored, \d came.*above 0",
            )
    refuse(uri, 0, [(LATE, 99.0, "other", None)], "other rows")
    assert append(uri, 0, first[::-1]) is crashed
    assert append(uri, 1, ONE)
    assert count(uri) == 2 + sum(row[0] != LATE for row in first)


def test_rows_under_a_number_that_came_empty_are_refused_before_the_columns_are_known(tmp_path: Path) -> None:
    uri = create(tmp_path / "w")
    for number, first in enumerate(([], [(LATE, 1.0, "a", None)])):
        assert append(uri, number, first)  # type: ignore[arg-type]
        refuse(uri, number, ONE, "other rows: . rows are stored, 2 came")
        assert not append(uri, number, first)  # type: ignore[arg-type]
    assert append(uri, 2, ONE)
    assert not append(uri, 1, [(LATE, 1.0, "a", None)])


def test_rows_under_a_number_of_an_empty_batch_that_maintenance_joined_are_refused(uri: Path) -> None:
    for number in range(6):
        append(uri, number, ONE if number % 2 else [])
    warehouse.load(None, uri)
    warehouse.maintain(None, uri)
    refuse(uri, 2, ONE, "batch 2 of 's' was never appended, or had no rows")
    assert not append(uri, 2, [])


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.list_(pa.float64())])
def test_zeros_of_both_signs_are_one_value_when_a_batch_comes_again(
    tmp_path: Path, kind: pa.DataType
) -> None:
    def given(zero: float) -> pa.Table:
        value = [zero] if pa.types.is_list(kind) else zero
        return pa.table({"x": [1.0], "z": pa.array([value], kind)})

    warehouse.create(None, tmp_path, "x", schema=given(0.0).schema)
    assert stream.append(None, tmp_path, given(0.0), source="s", batch=0)
    assert not stream.append(None, tmp_path, given(-0.0), source="s", batch=0)
    warehouse.load(None, tmp_path, given(-0.0), "night")
    assert warehouse.load(None, tmp_path, given(0.0), "night").outcome == "known"
    with pytest.raises(BatchMismatch, match="content differs"):
        warehouse.load(None, tmp_path, given(1e-45), "night")


def test_spark_refuses_other_rows_as_this_process_does(spark: SparkSession, uri: Path) -> None:
    def framed(rows: list[Row]) -> Any:
        return spark.createDataFrame(rows, "at bigint, x double, k string, beside array<double>").selectExpr(
            "k", "x", "timestamp_micros(at) at", "beside"
        )

    empty = framed(ONE).where("false")
    assert stream.append(
        spark, uri, framed([*ONE, (LATE, 1.0, "a", None)]).repartition(3), source="s", batch=0
    )
    assert stream.append(spark, uri, empty, source="s", batch=1)
    before = tables_of(uri)
    assert not append(uri, 0, [(LATE, 1.0, "a", None), *ONE])
    for number, rows in ((0, framed(OTHERS["a value"])), (0, empty), (1, framed(ONE))):
        with pytest.raises(BatchMismatch, match=f"batch {number} of 's' was appended before with other rows"):
            stream.append(spark, uri, rows, source="s", batch=number)
    assert tables_of(uri) == before


def replays_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(same_rows, "difference", lambda *_: None)


def only_counts_are_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(same_rows, "fingerprint", lambda rows: digests.Fingerprint(rows.num_rows))


def rejected_rows_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(same_rows, "_fingerprint_of_texts", lambda _: digests.Fingerprint())


@pytest.mark.parametrize(
    "mistake", [replays_are_not_compared, only_counts_are_compared, rejected_rows_are_not_compared]
)
def test_mistakes_in_the_comparison_are_caught(
    uri: Path, mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    append(uri, 0, [*ONE, (LATE, 5.0, None, None)])
    others: list[Row] = [*ONE, (LATE, 6.0, None, None)]
    if mistake is only_counts_are_compared:
        others = [*OTHERS["a value"], (LATE, 5.0, None, None)]
    refuse(uri, 0, others, "other rows")
    mistake(monkeypatch)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        refuse(uri, 0, others, "other rows")


def test_zeros_with_their_signs_would_refuse_a_batch_that_comes_again(
    uri: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant of the comparison of zeros."""
    append(uri, 0, [(0, 0.0, "a", [0.0])])
    assert not append(uri, 0, [(0, -0.0, "a", [-0.0])])
    right = digests.value_hashes
    monkeypatch.setattr(digests, "value_hashes", lambda column, **_: right(column, signed_zeros=True))
    with pytest.raises(BatchMismatch):
        append(uri, 0, [(0, -0.0, "a", [-0.0])])
