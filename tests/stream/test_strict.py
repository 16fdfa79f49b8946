"""Text records are taken strictly: what passes means one thing, what does not has a reason. Without Spark."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.warehouse.text import json_records
from tidemark.warehouse.text.csv_records import CsvRecords
from tidemark.warehouse.text.json_records import JsonRecords
from tidemark.warehouse.text.json_values import Real
from tidemark.warehouse.text.records import TextColumns

KINDS: dict[str, pa.DataType] = {
    "at": pa.timestamp("us", tz="UTC"),
    "value": pa.float64(),
    "name": pa.string(),
    "n": pa.int64(),
    "d": pa.decimal128(10, 2),
    "f": pa.float32(),
    "who": pa.struct([("id", pa.int64()), ("x", pa.float64())]),
    "xs": pa.list_(pa.float64()),
    "m": pa.map_(pa.string(), pa.decimal128(38, 0)),
}
NO_JSON = "no json record of the columns at timestamp, value double"


def parser(form: str, *names: str) -> CsvRecords | JsonRecords:
    columns = TextColumns(pa.schema([(name, KINDS[name]) for name in names or KINDS]))
    return CsvRecords(columns) if form == "csv" else JsonRecords(columns)


def reason(record: bytes | None, form: str = "json", *names: str) -> Any:
    return parser(form, *names).parse(pa.array([record], pa.binary())).refused.get(0)


NOT_JSON: dict[bytes, str] = {
    b"{}": "none of them",
    b'{"other": 1}': "none of them",
    b'{"value": 1} x': "Extra data",
    b'{"value": 1}{"value": 2}': "Extra data",
    b'{"value": 1}\x00': "Extra data",
    b"{'value': 1}": "double quotes",
    b"{value: 1}": "double quotes",
    b'{"value": 1,}': "double quotes",
    b'{"value": 01}': "delimiter",
    b'{"value": +1}': "Expecting value",
    b'{"value": .5}': "Expecting value",
    b'{"value": 1.}': "delimiter",
    b'{"value": 0x10}': "delimiter",
    b'{"value": NaN}': "NaN",
    b'{"value": Infinity}': "Infinity",
    b'{"value": -Infinity}': "Infinity",
    b'{"value": /* one */ 1}': "Expecting value",
    b'{"value": 1} // one': "Extra data",
    b'{"name": "a\tb"}': "control character",
    b'{"name": "a\nb"}': "control character",
    b'{"name": "\\x41"}': "escape",
    b'{"name": "\\ud800"}': "surrogate",
    b'{"name": "\\udc00\\ud800"}': "surrogate",
    b'{"value": 1, "other": {"\\ud800": 1}}': "surrogate",
    b'\xef\xbb\xbf{"value": 1}': "Expecting value",
    b'{"value": 1, "name": "\xff"}': "no UTF-8 from byte 22",
    b'{"value": 1, "name": "\xed\xa0\x80"}': "no UTF-8",
    b'{"value": 1, "name": "\xc0\x80"}': "no UTF-8",
    '{"value": 1}'.encode("utf-16"): "no UTF-8",
    b'[{"value": 1}]': "no object",
    b"null": "no object",
    b"1": "no object",
    b'"value"': "no object",
    b" ": "Expecting value",
    b"{": "double quotes",
    b'{"value": 1': "delimiter",
    b'{"value": ' + b"[" * 5000 + b"]" * 5000 + b"}": "nested too deep",
    b'{"value": 1, "other": ' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}": "nested too deep",
}
NO_VALUE: dict[bytes, str] = {
    b'{"value": 1, "value": 2}': "the field value is there twice",
    b'{"value": 1, "\\u0076alue": 2}': "the field value is there twice",
    b'{"value": 1, "other": {"a": 1, "a": 1}}': "the field a is there twice",
    b'{"value": 1, "other": 1, "other": 1}': "the field other is there twice",
    b'{"VALUE": 1}': "the field VALUE is not the column value: upper and lower case count",
    b'{"n": 1, "Name": "a"}': "the field Name is not the column name",
    b'{"value": 1e999}': "value is no double: 1e999",
    b'{"value": -1e999}': "value is no double: -1e999",
    b'{"value": 1' + b"0" * 400 + b"}": "value is no double: 1000",
    b'{"f": 1e39}': "f is no float: 1e39",
    b'{"d": 1.005}': "d is no decimal(10,2): 1.005",
    b'{"d": "1.005"}': "d is no decimal(10,2): 1.005",
    b'{"d": 123456789.5}': "d is no decimal(10,2): 123456789.5",
    b'{"d": 1e999999999}': "d is no decimal(10,2): 1e999999999",
    b'{"d": "NaN"}': "d is no decimal(10,2): NaN",
    b'{"at": 99999999999999}': "at is no timestamp: 99999999999999",
    b'{"at": 253402300800}': "at is no timestamp: 253402300800",
    b'{"at": -62135596801}': "at is no timestamp: -62135596801",
    b'{"at": "23:59"}': "at is no timestamp: 23:59",
    b'{"at": "T23:59"}': "at is no timestamp: T23:59",
    b'{"at": "2001-03-19T12:30:00.123456789Z"}': "at is no timestamp: 2001-03-19T12:30:00.123456789Z",
    b'{"at": "+12000-01-01T00:00:00Z"}': "at lies outside the years 1 to 9999",
    b'{"value": true}': "value is no double: true",
    b'{"value": 9007199254740993}': "value is no double: 9007199254740993 (a whole number that it cannot",
    b'{"value": 9007199254740993.0}': "value is no double: 9007199254740993.0 (a whole number",
    b'{"f": 16777217}': "f is no float: 16777217 (a whole number",
    b'{"who": {"x": 1e999}}': 'who is no struct<`id`: bigint, `x`: double>: {"x":1e999}',
    b'{"xs": [1, null, 1e999]}': "xs is no array<double>: [1,null,1e999]",
    b'{"m": {"a": 1.5}}': 'm is no map<string, decimal(38,0)>: {"a":1.5}',
}
TAKEN = [
    b'{"value": 1}',
    b' \t\r\n{"value": 1.5e-3}\n',
    b'{"value": null}',
    b'{"value": "NaN", "n": 1}',
    b'{"value": -0, "f": 1.1}',
    b'{"value": 9007199254740992, "f": 16777216}',
    b'{"value": 9007199254740993e3, "f": 1.6777217e7}',  # an exponent: the nearest is taken
    b'{"value": 1e308, "n": 9223372036854775807}',
    b'{"d": 1.10, "name": 1.50}',
    b'{"d": 100e-1}',
    b'{"d": "12345678.99"}',
    b'{"d": 12345678}',
    b'{"m": {"a": 12345678901234567890123456789012345678}}',
    b'{"at": 253402300799}',
    b'{"at": "2001-03-31T22:27:00.5Z"}',
    b'{"at": "0000-01-01T00:00:00Z"}',  # a time, which the sieve refuses
    b'{"at": "2001-03-31T22:27:00.123456000+0100"}',
    b'{"at": "2001-03-31 22:27+01"}',
    b'{"name": 12345678901234567890.5}',
    b'{"name": {"a": [1e999]}}',
    b'{"name": "\\ud83d\\ude00 \\u0000 \\\\ud800"}',
    b'{"name": {"a": [1, 2.5, true, null]}}',
    b'{"value": 1, "VALUE": 2, "other": {"value": 1e999}}',
    b'{"value": 1, "other": ' + b"[" * 500 + b"]" * 500 + b"}",
    b'{"value": 1, "name": "' + b"a" * 2**20 + b'"}',
]


@pytest.mark.parametrize("record", NOT_JSON, ids=lambda one: repr(one[:40]))
def test_what_is_no_strict_json_object_is_refused_as_none(record: bytes) -> None:
    said = reason(record)
    assert said.startswith(NO_JSON)
    assert NOT_JSON[record] in said


@pytest.mark.parametrize("record", NO_VALUE, ids=lambda one: repr(one[:40]))
def test_a_field_that_means_two_things_or_would_be_changed_is_named(record: bytes) -> None:
    assert reason(record).startswith(NO_VALUE[record])


@pytest.mark.parametrize("record", TAKEN, ids=lambda one: repr(one[:40]))
def test_what_is_strict_json_is_taken(record: bytes) -> None:
    assert reason(record) is None


def test_an_empty_record_is_told_so() -> None:
    assert [reason(None), reason(b""), reason(b"", "csv", "n"), reason(b"\n", "csv", "n")] == [
        *["an empty record"] * 4,
    ]


plain = st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.text(max_size=5))
floats = st.floats(allow_nan=False, allow_infinity=False)
trees = st.recursive(
    st.one_of(plain, floats),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
records = st.fixed_dictionaries(
    {"value": st.one_of(st.none(), floats, st.integers(-(2**53), 2**53))},
    optional={
        "name": st.one_of(plain, floats),
        "xs": st.lists(floats),
        "other": trees,
        "n": st.integers(-(2**63), 2**63 - 1),
    },
)


@given(records, st.booleans())
def test_every_record_that_json_can_say_without_loss_is_taken(
    record: dict[str, Any], ascii_only: bool
) -> None:
    if not ascii_only and any("\ud800" <= c <= "\udfff" for c in json.dumps(record, ensure_ascii=False)):
        return
    said = reason(json.dumps(record, ensure_ascii=ascii_only).encode())
    halves = any("\ud800" <= c <= "\udfff" for c in json.dumps(record, ensure_ascii=False))
    assert (said is not None) == halves


@given(records, st.data())
def test_what_passes_after_any_change_of_a_byte_is_still_json_with_each_name_once(
    record: dict[str, Any], data: Any
) -> None:
    told = bytearray(json.dumps(record).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        told[data.draw(st.integers(0, len(told) - 1))] = data.draw(st.integers(0, 255))
    assert is_strict(bytes(told)) or reason(bytes(told)) is not None


def is_strict(record: bytes) -> bool:
    """Told by other means: Python's own parser, and the pairs of every object as they stand."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({name for name, _ in pairs}) == len(pairs)
        return dict(pairs)

    def no_constant(name: str) -> float:
        raise ValueError(name)

    try:
        found = json.loads(record.decode(), object_pairs_hook=once, parse_constant=no_constant)
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, AssertionError):
        return False
    return isinstance(found, dict) and not {"value", *KINDS}.isdisjoint(found)


def test_a_parser_that_keeps_the_last_of_two_fields_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = json.JSONDecoder(parse_float=Real)
    monkeypatch.setattr(json_records, "_DECODE", decoder.decode)
    record = b'{"value": 1, "value": 2}'
    with pytest.raises(AssertionError):
        assert is_strict(record) or reason(record) is not None


CSV = ("value", "name", "n", "d")
NOT_CSV = {
    b"1,a,1": "3 fields, expected 4",
    b"1,a,1,1,1": "5 fields, expected 4",
    b'1,"a,1,1': "unexpected end",
    b'1,"a"b,1,1': "expected after",
    b'1,"a" ,1,1': "expected after",
    b'1,"a\\"b",1,1': "expected after",
    b"1,a,1,1\n2,b,2,2": "new-line",
    b'1,a"b,1,1': "a quote inside a field without quotes",
    b'1,a"b,1,1\n1,"c",1,1': "a quote inside a field without quotes",
    b"1,a\r,1,1": "new-line",
    b"1,\xff,1,1": "no UTF-8 from byte 2",
}
NO_FIELD = {
    b"x,a,1,1": "value is no double: x",
    b" 1,a,1,1": "value is no double:  1",
    b"9007199254740993,a,1,1": "value is no double: 9007199254740993 (a whole number that it cannot hold",
    b"1e999,a,1,1": "value is no double: 1e999",
    b"1d,a,1,1": "value is no double: 1d",
    b"0x1p3,a,1,1": "value is no double: 0x1p3",
    "\u0663,a,1,1".encode(): "value is no double: \u0663",
    b'"1\n2",a,1,1': "value is no double: 1\\n2",
    b"1,a,1.5,1": "n is no long: 1.5",
    "1,a,\u0663,1".encode(): "n is no long: \u0663",
    b"1,a,1,1.005": "d is no decimal(10,2): 1.005",
    b"1,a,1,1e999999999": "d is no decimal(10,2): 1e999999999",
}


@pytest.mark.parametrize("record", [*NOT_CSV, *NO_FIELD], ids=repr)
def test_what_is_no_strict_csv_is_refused(record: bytes) -> None:
    said = reason(record, "csv", *CSV)
    if record in NOT_CSV:
        assert said.startswith("no csv record of the columns value double, name string")
    assert (NOT_CSV | NO_FIELD)[record] in said


@given(
    st.one_of(st.none(), st.floats(allow_nan=False).filter(math.isfinite)),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n")),
    st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
    st.one_of(st.none(), st.decimals(-(10**7), 10**7, places=2)),
)
def test_every_row_that_a_csv_writer_writes_is_taken(value: Any, name: str, n: Any, d: Any) -> None:
    out = io.StringIO()
    csv.writer(out).writerow([value, name, n, d])
    assert reason(out.getvalue().encode(), "csv", *CSV) is None


def test_the_field_limit_of_the_caller_stays_and_does_not_apply() -> None:
    before = csv.field_size_limit()
    assert reason(b"1," + b"a" * (before + 1) + b",1,1", "csv", *CSV) is None
    assert csv.field_size_limit() == before
