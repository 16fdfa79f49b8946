"""Decides which rows of a batch are taken, and gives the reason for each row that is refused.

A row is refused if its parser gives a reason; if its time, a measure or its key is a timestamp or a date
outside the years 1 to 9999; or if its time is too far ahead of the clock. Refused rows of a stream go to the
table `rejected`. A bulk batch with a refused row is refused as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidemark.warehouse.columns.column_types import Limits
from tidemark.warehouse.columns.ticks import now_us, parse_duration
from tidemark.warehouse.columns.value_encoding import Measure, encode_values, epoch_micros
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.ingest.rejected import RECORD
from tidemark.warehouse.settings.options import Options

DEFAULT_AHEAD = "1 day"  # rows further ahead of the clock are refused
_SHOWN_CHARACTERS = 200  # of a record, in an error text
_NOT_SHOWN = "the row is not shown, because there are private columns"
_UNREADABLE = "the record cannot be read as the warehouse's columns"


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Which rows are refused, in addition to those outside the years 1 to 9999.

    latest          the last event time that is taken, in microseconds since 1970, inclusive; None takes any
    reasons         the rows have RECORD_COLUMNS at the end, which describe the record of each row; `_reason`
                    is NULL for a row that is taken
    all_or_nothing  the batch is refused if one of its rows is
    """

    latest: int | None = None
    reasons: bool = False
    all_or_nothing: bool = False


DEFAULT_FILTER = RowFilter()
ALL_OR_NOTHING = RowFilter(all_or_nothing=True)


def latest_time(ahead: str | timedelta | None) -> int | None:
    """The last accepted time, for `RowFilter.latest`: the clock's time and `ahead`; None accepts any.

    InputError if `ahead` is no duration.
    """
    return None if ahead is None else now_us() + parse_duration(ahead)


@dataclass(frozen=True, slots=True)
class RefusedRows:
    """How many rows of a partition were refused; the record of the first one, with the columns of RECORD."""

    count: int
    first: dict[str, Any]


def refused_error(refused: Sequence[RefusedRows], rows: int) -> InputError:
    """The error for a batch of so many rows, of which at least one is refused."""
    count, first = sum(part.count for part in refused), refused[0].first
    what = f"1 of {rows:,} rows of the batch" if count == 1 else f"{count:,} of {rows:,} rows of the batch"
    return InputError(
        f"{what} cannot be taken, {'' if count == 1 else 'for example '}{first['reason']}: "
        f"{(first['raw'] or _NOT_SHOWN)[:_SHOWN_CHARACTERS]}. Nothing was changed. Correct such rows in the "
        "input, or leave them out; times in the future are taken with a longer ahead."
    )


def filter_rows(
    row_filter: RowFilter, options: Options, names: list[str], rows: pa.RecordBatch
) -> tuple[pa.RecordBatch, int, list[dict[str, Any]]]:
    """Splits rows into those taken and those refused: the former, the number of the latter, their records.

    The warehouse's columns, called `names`, come first in `rows`, in that order, under any names. The record
    of a refused row is a dict with the columns of RECORD; its `raw` is the record, or the row as JSON. A
    filter that is all_or_nothing gives the first record alone.
    """
    refusals = list(_refusals(row_filter, options, names, rows))
    is_refused = reduce(pc.or_, (mask for mask, _ in refusals)) if refusals else None
    if is_refused is None or not pc.any(is_refused).as_py():
        return rows, 0, []
    places = np.flatnonzero(np.asarray(is_refused))
    refused: list[dict[str, Any]] = []
    for i in places[: 1 if row_filter.all_or_nothing else None].tolist():
        record = _record_of(row_filter, rows, i)
        if options.private:
            record = without_values(record, sealed=options.reveals)
        elif record["raw"] is None:
            values = {name: readable(column[i]) for name, column in zip(names, rows.columns, strict=False)}
            record["raw"] = json.dumps(values, default=str)
        if record["reason"] is None:
            record["reason"] = next(text for mask, text in refusals if text and mask[i].as_py())
        refused.append(record)
    return rows.filter(pc.invert(is_refused)), len(places), refused


def without_values(record: dict[str, Any], *, sealed: bool) -> dict[str, Any]:
    """The columns of RECORD of a row of a warehouse with private columns: no reason with values.

    sealed   whether the text is sealed (private_rows.py); else it is left out
    """
    raw = record["raw"] if sealed else None
    return {**record, "raw": raw, "reason": None if record["reason"] is None else _UNREADABLE}


def _record_of(row_filter: RowFilter, rows: pa.RecordBatch, i: int) -> dict[str, Any]:
    """The columns of RECORD of row i, None where the rows do not have them."""
    if not row_filter.reasons:
        return dict.fromkeys(RECORD.names)
    columns = zip(RECORD, rows.columns[-len(RECORD) :], strict=True)
    return {
        field.name: _text(readable(column[i])) if pa.types.is_string(field.type) else column[i].as_py()
        for field, column in columns
    }


def _refusals(
    row_filter: RowFilter, options: Options, names: list[str], rows: pa.RecordBatch
) -> Iterator[tuple[pa.BooleanArray, str]]:
    """Masks of refused rows, each with the reason; an empty reason if the rows have their own."""
    if row_filter.reasons:
        reason = rows.columns[-len(RECORD) :][RECORD.get_field_index("reason")]
        yield reason.is_valid(), ""
    for measure, limits in _bounded(options):
        column = encode_values(measure, rows.column(names.index(measure.name)))
        outside = ~column.null & ((column.stored < limits.least) | (column.stored > limits.greatest))
        yield pa.array(outside), f"{measure.name} lies outside {limits.description}"
    if row_filter.latest is not None and options.time_column is not None:
        yield _too_far_ahead(
            row_filter.latest, options.time_column, rows.column(names.index(options.time_column.name))
        )


def _bounded(options: Options) -> list[tuple[Measure, Limits]]:
    """The columns that accept only a part of the numbers that can be stored, such as times and dates."""
    columns = [options.time_column, *options.measures]
    parts = (part for key in options.keys for part in key.parts)
    columns += [Measure(part.name, part.type) for part in parts if part.column_type.is_measure]
    measures = dict.fromkeys(column for column in columns if column is not None)
    return [(measure, limits) for measure in measures if (limits := measure.column_type.limits) is not None]


def _too_far_ahead(latest: int, time: Measure, array: pa.Array) -> tuple[pa.BooleanArray, str]:
    column = encode_values(time, array)
    ahead: NDArray[np.bool_] = ~column.null & (epoch_micros(time, column.stored) > latest)
    return pa.array(ahead), f"{time.name} lies too far in the future, after {np.datetime64(latest, 'us')}Z"


def readable(value: pa.Scalar) -> Any:
    """The value as a Python object; as text if Python has no such value, for example the year 12000."""
    if not value.is_valid:
        return None
    if isinstance(value, pa.StructScalar):
        return {name: readable(value[i]) for i, name in enumerate(field.name for field in value.type)}
    if isinstance(value, pa.ListScalar):  # maps are lists too
        return [readable(item) for item in value.values]
    if pa.types.is_temporal(value.type):
        unit: Any = "D" if pa.types.is_date(value.type) else value.type.unit
        return str(np.datetime64(value.value, unit))
    if pa.types.is_string(value.type) or pa.types.is_large_string(value.type):
        return _text(value.as_buffer().to_pybytes())
    return value.as_py()


def _text(value: Any) -> Any:
    """The value as text, None as None; bytes that are not UTF-8 are written as escapes."""
    if isinstance(value, bytes | bytearray):
        return value.decode(errors="backslashreplace")
    return value if value is None else str(value)
