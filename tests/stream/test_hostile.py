"""Streams of hostile records: each good one is kept, each bad one is told, and the stream goes on."""

from __future__ import annotations

import csv
import io
import json
import math
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.query.answers import several
from tests.stream import played
from tests.stream.test_out_of_range import HOSTILE, as_before
from tests.stream.test_strict import NO_VALUE, NOT_CSV, NOT_JSON
from tests.warehouse.disk import rows_of, tables_of
from tidemark import query, stream, warehouse
from tidemark.warehouse import InputError
from tidemark.warehouse.columns.ticks import FIRST_US, LAST_US

COLUMNS = {
    "at": "timestamp",
    "value": "double",
    "name": "string",
    "n": "bigint",
    "d": "decimal(10,2)",
    "f": "float",
    "day": "date",
    "flag": "boolean",
    "who": "struct<id: bigint, x: double>",
    "xs": "array<double>",
    "m": "map<string, decimal(38,0)>",
}
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
NOW = datetime(2001, 3, 31, 12, tzinfo=UTC)
BAD_HERE = [  # no record of other kinds, beside those of test_strict
    *('{"n": 1.5, "value": 1}', '{"n": "5", "value": 1}', '{"n": 9223372036854775808}', '{"n": true}'),
    *('{"value": "much"}', '{"value": true}', '{"value": [1]}', '{"flag": 1}', '{"flag": "true"}'),
    *('{"at": 1.5}', '{"at": "2001-02-30"}', '{"at": ""}', '{"at": {}}', '{"day": 5}', '{"day": "soon"}'),
    *('{"who": 3}', '{"who": {"id": "x"}}', '{"xs": {"a": 1}}', '{"xs": ["a"]}', '{"m": [1]}'),
    *('{"at": "+12000-01-01T00:00:00Z"}', '{"at": "-0001-01-01T00:00:00Z"}', '{"at": "0000-12-31"}'),
    *('{"day": "10000-01-01"}', '{"day": "+5881580-07-11"}', '{"at": "2999-01-01"}'),
]


def good_record(r: random.Random, i: int) -> dict[str, Any]:
    """A record with number i as `n`, and columns that are not there, null, or of any text and size."""
    record: dict[str, Any] = {"n": i, "at": (NOW + timedelta(seconds=r.randint(0, 10**6))).isoformat()}
    draw: dict[str, Callable[[], Any]] = {
        "value": lambda: r.choice([0, -0.0, 1.5, 2**53, 1e308, 5e-324, "NaN", "-Infinity", r.gauss(0, 1e6)]),
        "name": lambda: r.choice(["", "a", "\0", "é\u2028😀", 'quoted "x"', "a,b", "x" * 10**5, "\\ud800"]),
        "d": lambda: r.choice([0, 1.5, "12345678.99", -0.01, 7]),
        "f": lambda: r.choice([1.5, 16777216, -2]),
        "day": lambda: r.choice(["0001-01-01", "9999-12-31", "2001-03-31"]),
        "flag": lambda: r.choice([True, False]),
        "who": lambda: r.choice([{"id": 2**63 - 1, "x": 1}, {"id": None}, {}]),
        "xs": lambda: r.choice([[], [1, None, 2.5]]),
        "m": lambda: {"k": 10**37 + i},
        "other": lambda: json.loads("[" * 50 + "]" * 50),
    }
    for name, make in draw.items():
        if r.random() < 0.5:
            record[name] = None if r.random() < 0.2 else make()
    return record


def expected(record: dict[str, Any]) -> dict[str, Any]:
    """The row of a good record, as Spark's rows have it."""
    row: dict[str, Any] = {name: record.get(name) for name in COLUMNS}
    row["at"] = datetime.fromisoformat(record["at"]).replace(tzinfo=None)
    for name, make in (("value", float), ("f", float), ("day", date.fromisoformat)):
        row[name] = None if row[name] is None else make(row[name])
    row["d"] = None if row["d"] is None else Decimal(str(row["d"])).quantize(Decimal("0.01"))
    if row["who"] is not None:
        x = row["who"].get("x")
        row["who"] = {"id": row["who"].get("id"), "x": None if x is None else float(x)}
    if row["xs"] is not None:
        row["xs"] = [None if x is None else float(x) for x in row["xs"]]
    row["m"] = None if row["m"] is None else {"k": Decimal(row["m"]["k"])}
    return row


def comparable(row: dict[str, Any]) -> str:
    """The row as text, in which NaN is equal to itself."""
    return repr({name: one.asDict() if hasattr(one, "asDict") else one for name, one in row.items()})


class Text:
    """A stream of text records, one file a batch, into a warehouse of its own."""

    def __init__(self, spark: SparkSession, folder: Path, form: Any, schema: str, **options: Any) -> None:
        self.spark, self.uri, self.folder, self.form = spark, folder / "w", folder, form
        warehouse.create(spark, self.uri, schema=schema, eps=0.1, **options)
        (folder / "in").mkdir()

    def run(self, records: list[bytes] | None = None) -> list[stream.BatchReport]:
        if records is not None:
            number = len(list((self.folder / "in").iterdir()))
            (self.folder / "in" / f"{number}.txt").write_bytes(b"\n".join(records) + b"\n")
        text = self.spark.readStream.format("text").load(str(self.folder / "in"))
        rows = text.selectExpr("value", "_metadata.file_name AS position")
        reports: list[stream.BatchReport] = []
        parsed = stream.parse(rows, warehouse.open_snapshot(self.uri).options, self.form)
        kept: dict[str, Any] = {"source": "s", "checkpoint": self.folder / "c", "trigger": "available now"}
        stream.start(parsed, self.uri, progress=reports.append, **kept).awaitTermination()
        return reports

    def events(self) -> list[dict[str, Any]]:
        found = (
            self.spark.read.format("delta").load(str(self.uri / "events")).drop("_source", "_batch", "_tick")
        )
        return [row.asDict() for row in found.collect()]

    def rejected(self) -> dict[str, str]:
        found = rows_of(self.uri, "rejected")
        return dict(zip(found.column("raw").to_pylist(), found.column("reason").to_pylist(), strict=True))


def test_a_stream_gets_past_hostile_json_with_every_good_record(spark: SparkSession, tmp_path: Path) -> None:
    one = Text(spark, tmp_path, "json", SCHEMA, measures=["value", "d", "day"], key="name", time="at")
    r = random.Random(7)
    bad = [record for record in [*NOT_JSON, *NO_VALUE] if b"\n" not in record and record.strip()]
    bad = [record for record in bad if not record.startswith(b"\xff\xfe")] + [
        text.encode() for text in BAD_HERE
    ]
    good = [good_record(r, i) for i in range(120)]
    for part in range(2):
        mine = [json.dumps(one, ensure_ascii=r.random() < 0.5).encode() for one in good[part::2]]
        records = [*mine, *bad[part::2]]
        r.shuffle(records)
        (report,) = one.run(records)
        assert (report.rows, report.rejected) == (60, len(bad[part::2]))
        missing = Counter(name for record in good[part::2] for name in COLUMNS if record.get(name) is None)
        assert report.nulls == dict(missing)
    assert one.run() == []
    assert Counter(map(comparable, one.events())) == Counter(comparable(expected(record)) for record in good)
    rejected = one.rejected()
    assert set(rejected) == {record.decode(errors="backslashreplace") for record in bad}
    assert all(rejected.values())
    assert rejected['{"day": "10000-01-01"}'] == "day lies outside the years 1 to 9999"
    assert rejected['{"at": "0000-12-31"}'] == "at lies outside the years 1 to 9999"
    assert rejected['{"n": 1.5, "value": 1}'] == "n is no long: 1.5"
    assert warehouse.load(spark, one.uri).rows == len(good)
    assert query.open(one.uri).quantile(1, "day").value == max(
        (date.fromisoformat(record["day"]) for record in good if record.get("day")), default=None
    )
    assert warehouse.verify(one.uri).ok


def test_a_stream_gets_past_hostile_csv_with_every_good_record(spark: SparkSession, tmp_path: Path) -> None:
    one = Text(
        spark, tmp_path, "csv", "value double, name string, n bigint, d decimal(10,2)", measures=["value"]
    )
    names = ["a", 'said "no"', "a,b", "\\", '\\"', " a ", "é😀", "\0", "x" * 200_000, '"']
    good = [
        (i / 8, names[i % len(names)], None if i % 7 == 0 else i, Decimal(i).scaleb(-2)) for i in range(60)
    ]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(good)
    bad = [record for record in NOT_CSV if b"\n" not in record and b"\r" not in record] + [
        b"much,a,1,1",
        b"1e999,a,1,1",
        b"1,a,1,1.005",
    ]
    (report,) = one.run([*out.getvalue().encode().splitlines(), *bad])
    assert (report.rows, report.rejected, report.nulls) == (60, len(bad), {"n": 9})
    assert one.run() == []
    assert Counter(tuple(row.values()) for row in one.events()) == Counter(good)
    assert set(one.rejected()) == {record.decode(errors="backslashreplace") for record in bad}


TYPED = (
    "at timestamp, x double, n bigint, d decimal(18,4), m timestamp, day date, key string, other timestamp"
)


def typed(spark: SparkSession, micros: list[int]) -> DataFrame:
    """Rows with each of the times in each place that has one, and hostile values of other kinds."""
    good = "timestamp'2001-03-31', 1D, 1L, 1BD, timestamp'2001-03-31', date'2001-03-31', 'a', NULL"
    others = {
        "x": ("double('NaN')", "double('Infinity')", "-1.7976931348623157E308D", "-0D", "NULL"),
        "n": ("9223372036854775807L", "-9223372036854775807L - 1L", "9007199254740993L"),
        "d": ("99999999999999.9999BD", "-99999999999999.9999BD"),
        "key": ("repeat('k', 10000000)", "'a\\0b'", "cast(X'FF61' AS string)", "''", "'\\uD83D\\uDE00'"),
        "other": tuple(f"timestamp_micros({us}L)" for us in (10**18, -(10**18))),
    }
    times = [us if us > -(2**63) else us + 1 for us in micros]  # SQL has no literal of the least
    for name in ("at", "m"):
        others[name] = tuple(f"timestamp_micros({us}L)" for us in times)
    others["day"] = tuple(
        f"date_from_unix_date({day})" for day in (2932897, -719163, 2**31 - 1, -(2**31) + 1)
    )
    names = TYPED.replace(",", "").split()[::2]
    values = [spark_text.strip() for spark_text in good.split(",")]
    rows = [values] + [
        [text if name == column else value for name, value in zip(names, values, strict=True)]
        for column, texts in others.items()
        for text in texts
    ]
    union = " UNION ALL ".join("SELECT " + ", ".join(row) for row in rows)
    kinds = [one.rsplit(" ", 1) for one in TYPED.split(", ")]
    said = ", ".join(
        f"CAST({quoted} AS {kind}) AS {name}"
        for quoted, (name, kind) in zip([f"_c{i}" for i in range(len(names))], kinds, strict=True)
    )
    return spark.sql(f"SELECT {said} FROM ({union}) AS t({', '.join(f'_c{i}' for i in range(len(names)))})")


def test_a_stream_gets_past_hostile_rows_and_a_load_refuses_them(spark: SparkSession, tmp_path: Path) -> None:
    warehouse.create(
        spark, tmp_path, ["x", "n", "d", "m", "day"], key="key", time="at", eps=0.1, schema=TYPED
    )
    rows = typed(spark, [*HOSTILE, FIRST_US, LAST_US]).cache()
    before = tables_of(tmp_path)
    with pytest.raises(
        InputError, match=r"cannot be taken, for example (at|m|day) lies outside the years .* Nothing was"
    ) as told:
        warehouse.load(spark, tmp_path, rows, "night")
    assert type(told.value) is InputError
    assert tables_of(tmp_path) == before
    bad = 2 * len(HOSTILE) + 4
    assert stream.append(spark, tmp_path, rows, source="s", batch=0)
    assert not stream.append(spark, tmp_path, rows, source="s", batch=0)
    rejected = rows_of(tmp_path, "rejected").column("reason").to_pylist()
    future = [reason for reason in rejected if reason.startswith("at lies too far in the future, after ")]
    assert len(future) == 1  # the last microsecond of the years
    assert Counter(reason for reason in rejected if reason not in future) == {
        f"{name} lies outside the years 1 to 9999": count
        for name, count in (("at", len(HOSTILE)), ("m", len(HOSTILE)), ("day", 4))
    }
    good = rows.count() - bad - len(future)
    wh = query.open(tmp_path)
    for load in (False, True):
        if load:
            assert warehouse.load(spark, tmp_path).rows == good
        assert wh.quantile([0, 0.5, 1], "n", mode="exact").items[2].value == 2**63 - 1
        assert wh.quantile(1, "m", mode="exact").value == datetime.max.replace(tzinfo=UTC)
        assert wh.quantile(0, "m", mode="exact").value == datetime.min.replace(tzinfo=UTC)
        assert math.isnan(wh.quantile(1, "x").value)
        assert wh.quantile(1, "d").value == Decimal("99999999999999.9999")
        counted = {
            answer.value: answer.count
            for answer in several(wh.frequency(["a", "a\0b", "k" * 10**7, "\udcffa"]))
        }
        assert counted == {"a": good - 5, "a\0b": 1, "k" * 10**7: 1, "\udcffa": 1}
        assert wh.span()[1] in {None, wh.span(last="1 day")[1]}
    assert warehouse.verify(tmp_path).ok
    named = spark.read.format("delta").load(str(tmp_path / "events"))
    assert named.where("key = 'a\\0b'").count() == named.where("length(key) = 10000000").count() == 1
    kept = rows.where("m BETWEEN timestamp'2001-01-01' AND timestamp'2002-01-01' AND day = date'2001-03-31'")
    assert warehouse.load(spark, tmp_path, kept.where("at = m"), "night").rows == good + len(future) - 4
    rows.unpersist()


def test_spark_answers_where_such_rows_are_in_already(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        as_before(patch)
        played.create(tmp_path / "w")
        for number, us in enumerate(HOSTILE):
            played.append(tmp_path / "w", number, [played.row(number, us, us, us)])
    query.register_views(spark, tmp_path / "w", "old")
    assert spark.sql("SELECT count(*) FROM old_events").collect()[0][0] == len(HOSTILE)
    for text in (
        "old_quantile(0.5, 'moment')", "old_quantile(0.5D, 'value', '1 day')", "old_top(5)", "old_summary",
        "old_histogram(3, 'moment')", "old_cdf(measure => 'moment')",
    ):  # fmt: skip
        assert spark.sql(f"SELECT count(*) FROM {text}").collect()[0][0]
    assert stream.append(
        spark,
        tmp_path / "w",
        spark.createDataFrame([], spark.table("old_events").drop("_source", "_batch", "_tick").schema),
        source="s",
        batch=99,
    )
    assert warehouse.load(spark, tmp_path / "w").rows == len(HOSTILE)
    assert warehouse.verify(tmp_path / "w").ok
