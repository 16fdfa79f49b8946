"""What came before may come again: no table gains a row, a file or a version."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.warehouse.conftest import HISTORY, LIVE, Grown, arrow, frame
from tests.warehouse.disk import tables_of
from tidemark import query, stream, warehouse
from tidemark.warehouse import InputError
from tidemark.warehouse.settings.options import Options


def test_every_batch_of_a_load_or_a_stream_may_come_again(spark: SparkSession, grown: Grown) -> None:
    """In another order of rows and columns, in other partitions, in any order of batches.

    The newest of each kind comes by Spark, the others without it.
    """
    before = tables_of(grown.uri)
    r = random.Random(0)
    for name in reversed(HISTORY):
        rows, columns = list(grown.batches[name]), ["n", "x", "t", "k"]
        r.shuffle(rows)
        if name == HISTORY[-1]:
            report = warehouse.load(spark, grown.uri, frame(spark, rows).repartition(3).select(columns), name)
        else:
            report = warehouse.load(None, grown.uri, arrow(rows).select(columns), name)
        assert (report.outcome, report.rows, report.bytes_written) == ("known", 0, 0)
    for number in reversed(LIVE):
        rows, how = grown.batches[number], dict[str, Any](source="s", batch=number)
        if number == LIVE[-1]:
            assert stream.append(spark, grown.uri, frame(spark, rows), **how) is False
        else:
            assert stream.append(None, grown.uri, arrow(rows), **how) is False
    assert tables_of(grown.uri) == before


def test_the_batch_that_fixed_the_columns_may_come_again(spark: SparkSession, tmp_path: Path) -> None:
    """A warehouse made without a schema; narrow columns come again, wide ones too."""
    warehouse.create(spark, tmp_path, ["x"], key="k", eps=0.1)
    rows = spark.createDataFrame([(1, "a", 0.5), (None, None, None)], "x int, k string, other float")
    assert warehouse.load(spark, tmp_path, rows, "first").rows == 2
    assert stream.append(spark, tmp_path, rows, source="s", batch=3)
    before = tables_of(tmp_path)
    assert warehouse.load(spark, tmp_path, rows, "first").outcome == "known"
    assert (
        warehouse.load(spark, tmp_path, rows.selectExpr("other", "k", "cast(x as tinyint)"), "first").outcome
        == "known"
    )
    assert not stream.append(spark, tmp_path, rows, source="s", batch=3)
    for number in (2, 0):
        with pytest.raises(InputError, match="never appended"):
            stream.append(spark, tmp_path, rows, source="s", batch=number)
    assert warehouse.create(spark, tmp_path, ["x"], key="k").columns == (
        ("x", "integer"),
        ("k", "string"),
        ("other", "float"),
    )
    assert tables_of(tmp_path) == before
    assert warehouse.load(spark, tmp_path).rows == 2
    before = tables_of(tmp_path)
    assert warehouse.load(spark, tmp_path).outcome in ("empty", "known")
    assert not stream.append(spark, tmp_path, rows, source="s", batch=3)
    assert tables_of(tmp_path) == before
    assert query.open(tmp_path).quantile(0.5).nulls == 2


@pytest.mark.parametrize(
    "options",
    [
        Options(("x",), None, None, 0.001, 10, 0),
        Options(("a/b", "c`d", "é"), "t", 7, 1e-320, 2**40, 2**53, own_keys=(("k",),)),
    ],
)
def test_options_come_back_from_the_properties_as_they_were(options: Options) -> None:
    assert Options.from_properties("w", options.properties(), {}) == options
    with_columns = Options.from_properties("w", options.properties(), {"_tick": "long", "x": "double"})
    assert with_columns.columns == (("x", "double"),)
