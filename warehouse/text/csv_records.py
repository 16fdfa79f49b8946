"""CSV records, strictly (RFC 4180), and where they end.

    record   fields separated by one character; a line end, LF or CRLF, ends it
    field    text without quotes and line ends, or text in quotes, in which a quote is doubled
    NULL     a field without text, in quotes or not

The form is checked for all records at once. The quotes of a record are numbered from 0: an even one opens a
field, so a separator or the record's start is before it; an odd one closes it, so a separator or the line end
is after it. The exception is a doubled quote: an odd one with an even one directly after it. What lies
behind an odd number of quotes is inside a field. Arrow then splits the records that pass into fields.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from tidemark.warehouse.errors import InputError
from tidemark.warehouse.text.records import Parsed, TextColumns, as_texts, shown
from tidemark.warehouse.text.values import parse_texts, why_refused

_QUOTE, _LF, _CR = b'"\n\r'
_MAX_FIELD = 2**31 - 1  # characters of a CSV field: the limit of Arrow's strings


@dataclass(frozen=True, slots=True)
class CsvRecords:
    """Parses CSV records, whose fields are the columns in their order."""

    columns: TextColumns
    separator: str = ","

    def __post_init__(self) -> None:
        """InputError for a column that is nested."""
        for field in self.columns.schema:
            if pa.types.is_nested(field.type):
                raise InputError(
                    f"column {field.name!r} is of type {field.type}, which a CSV field cannot hold. Use "
                    "Parquet or JSON."
                )

    def parse(self, records: pa.Array) -> Parsed:
        """The records (binary, with or without their line ends) as rows."""
        if not len(records):
            return Parsed(pa.RecordBatch.from_pylist([], self.columns.schema), {})
        records = with_line_ends(records)
        faulty = self._faulty(records)
        refused = self._reasons(records, np.flatnonzero(faulty)) if faulty.any() else {}
        rows = np.flatnonzero(~faulty)
        fields = self._split(records.filter(pa.array(~faulty)) if refused else records)
        arrays = []
        for field, type_name, texts in zip(
            self.columns.schema, self.columns.type_names, fields.columns, strict=True
        ):
            array, bad = parse_texts(texts, field.type)
            arrays.append(array)
            for row in bad:
                reason = why_refused(field, type_name, shown(texts[row].as_py()))
                refused.setdefault(int(rows[row]), reason)
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.columns.schema)
        return Parsed(_spread(batch, rows, len(records)) if faulty.any() else batch, refused)

    def _faulty(self, records: pa.Array) -> NDArray[np.bool_]:
        """Which records are not of the form of RFC 4180, not of as many fields as columns, or no UTF-8."""
        faulty = self._malformed(*_bytes_and_ends(records))
        try:
            records.cast(pa.string())
        except pa.ArrowInvalid:
            faulty |= np.array([not _is_utf8(record) for record in records.to_pylist()], dtype=bool)
        return faulty

    def _malformed(self, data: NDArray[np.uint8], ends: NDArray[np.int64]) -> NDArray[np.bool_]:
        separator = ord(self.separator)
        starts = np.concatenate([[0], ends[:-1]])
        quotes = np.flatnonzero(data == _QUOTE)
        first_quote = np.searchsorted(quotes, starts)
        record_of = np.searchsorted(ends, quotes, "right")
        is_closing = (np.arange(len(quotes)) - first_quote[record_of]) % 2 == 1
        faulty: NDArray[np.bool_] = np.diff(first_quote, append=len(quotes)) % 2 == 1
        faulty |= np.isin(data[starts], (_LF, _CR)) & (ends - starts <= 2)  # nothing but the line end
        faulty[record_of[~_quotes_in_place(data, quotes, is_closing, starts[record_of], separator)]] = True

        def outside(byte: int) -> NDArray[np.int64]:
            found: NDArray[np.int64] = np.flatnonzero(data == byte)
            if not len(quotes):
                return found
            before = np.searchsorted(quotes, found) - first_quote[np.searchsorted(ends, found, "right")]
            inside: NDArray[np.bool_] = before % 2 == 1
            return found[~inside]

        for byte, wanted in ((separator, len(self.columns.schema) - 1), (_LF, 1)):
            faulty |= np.diff(np.searchsorted(outside(byte), ends), prepend=0) != wanted
        returns = outside(_CR)
        alone = returns[data[np.minimum(returns + 1, len(data) - 1)] != _LF]
        faulty[np.searchsorted(ends, alone, "right")] = True
        return faulty

    def _split(self, records: pa.Array) -> pa.RecordBatch:
        """The fields of well-formed records as texts; NULL where there is no text."""
        names = [str(i) for i in range(len(self.columns.schema))]
        if not len(records):
            return pa.record_batch([pa.array([], pa.string())] * len(names), names)
        data, _ = _bytes_and_ends(records)
        table = pa_csv.read_csv(
            pa.BufferReader(pa.py_buffer(data)),
            pa_csv.ReadOptions(column_names=names, block_size=len(data) + 1, use_threads=False),
            pa_csv.ParseOptions(delimiter=self.separator, newlines_in_values=True),
            pa_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True, null_values=[""]
            ),
        )
        return table.combine_chunks().to_batches()[0]

    def _reasons(self, records: pa.Array, rows: NDArray[np.int64]) -> dict[int, str]:
        malformed = f"no csv record of the columns {self.columns.said}"
        texts, refused = as_texts(without_line_ends(records.take(pa.array(rows))), malformed)
        previous = csv.field_size_limit(_MAX_FIELD)
        try:
            faults = {row: self._fault(text) for row, text in enumerate(texts) if text is not None}
        finally:
            csv.field_size_limit(previous)
        refused |= {row: f"{malformed}: {fault}" for row, fault in faults.items()}
        return {int(rows[row]): reason for row, reason in refused.items()}

    def _fault(self, text: str) -> str:
        if _stray_quote(self.separator).match(text):
            return "a quote inside a field without quotes"
        try:
            fields = next(csv.reader([text], delimiter=self.separator, strict=True), [])
        except csv.Error as error:
            return str(error)
        names = self.columns.schema.names
        if len(fields) != len(names):
            return f"{len(fields)} fields, expected {len(names)}: {', '.join(names)}"
        return "a carriage return outside quotes, and not at the end"


def record_ends(data: bytes) -> NDArray[np.int64]:
    """Where each record of CSV text ends, after its LF: at the line ends that are not inside quotes."""
    view = np.frombuffer(data, np.uint8)
    lines = np.flatnonzero(view == _LF)
    if b'"' in data:
        lines = lines[np.searchsorted(np.flatnonzero(view == _QUOTE), lines) % 2 == 0]
    return lines + 1


def split_record(record: bytes, separator: str) -> tuple[list[str], str]:
    """The fields of one record as text; and why it is no record, empty if it is one."""
    (text,), refused = as_texts(without_line_ends(pa.array([record], pa.binary())), "no csv record")
    if text is None:
        return [], refused[0]
    try:
        return next(csv.reader([text], delimiter=separator, strict=True), []), ""
    except csv.Error as error:
        return [], str(error)


def with_line_ends(records: pa.Array) -> pa.Array:
    """The records, each with one line end."""
    if pc.all(pc.ends_with(records, b"\n")).as_py():
        return records
    return pc.binary_join_element_wise(
        pc.fill_null(without_line_ends(records), b""), pa.scalar(b"\n"), pa.scalar(b"")
    )


def without_line_ends(records: pa.Array) -> pa.Array:
    """The records without the line end, which belongs to the framing and not to the last field."""
    return pc.replace_substring_regex(records, rb"\r?\n\z", b"")


def _bytes_and_ends(records: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of the records one after the other, and where each ends."""
    offsets = np.frombuffer(records.buffers()[1], np.int32)[
        records.offset : records.offset + len(records) + 1
    ]
    data = np.frombuffer(records.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    return data, (offsets[1:] - offsets[0]).astype(np.int64)


def _quotes_in_place(
    data: NDArray[np.uint8],
    quotes: NDArray[np.int64],
    is_closing: NDArray[np.bool_],
    starts: NDArray[np.int64],
    separator: int,
) -> NDArray[np.bool_]:
    """Whether each quote opens a field, closes one, or is half of a doubled one."""
    beside = np.diff(quotes, append=-2) == 1  # the next quote is directly after this one
    before = data[np.maximum(quotes - 1, 0)]
    after = data[np.minimum(quotes + 1, len(data) - 1)]
    behind = data[np.minimum(quotes + 2, len(data) - 1)]
    opens = (quotes == starts) | (before == separator) | np.concatenate([[False], beside[:-1]])[: len(quotes)]
    closes = (after == separator) | (after == _LF) | ((after == _CR) & (behind == _LF)) | beside
    in_place: NDArray[np.bool_] = np.where(is_closing, closes, opens)
    return in_place


def _stray_quote(separator: str) -> re.Pattern[str]:
    """Matches a record up to a quote in a field that did not begin with one."""
    mark = re.escape(separator)
    field = rf'(?:"(?:[^"]|"")*+"|[^"{mark}\r\n]*+){mark}'
    return re.compile(rf'(?:{field})*+[^"{mark}\r\n]++"')


def _is_utf8(record: bytes | None) -> bool:
    try:
        str(record or b"", "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _spread(rows: pa.RecordBatch, places: NDArray[np.int64], count: int) -> pa.RecordBatch:
    """The rows at these places of `count` rows, NULL at the others."""
    source = np.full(count, -1)
    source[places] = np.arange(len(places))
    return rows.take(pa.array(source, mask=source < 0))
