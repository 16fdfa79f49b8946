"""Decides which rows of a batch are taken, and gives the reason for each row that is refused.

A row is refused if its parser gives a reason; if its time, a measure or its key is a timestamp or a date
outside the years 1 to 9999; or if its time is further ahead of the clock than the stream allows. Refused rows
of a stream go to the table `rejected`. A bulk batch with a refused row is refused as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidemark.warehouse.columns.measures import Measure, encode_values, epoch_micros
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.settings.options import Options

_SHOWN_CHARACTERS = 200  # of a record, in an error text


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Which rows are refused, in addition to those outside the years 1 to 9999.

    latest          the last event time that is taken, in microseconds since 1970, inclusive; None takes any
    reasons         the rows have three more columns at the end: the position of the record in its source, the
                    record itself, and the reason why it is refused, NULL if it is taken
    all_or_nothing  a refused row raises InputError
    """

    latest: int | None = None
    reasons: bool = False
    all_or_nothing: bool = False


DEFAULT_FILTER = RowFilter()
ALL_OR_NOTHING = RowFilter(all_or_nothing=True)


def filter_rows(
    row_filter: RowFilter, options: Options, names: list[str], rows: pa.RecordBatch
) -> tuple[pa.RecordBatch, list[dict[str, Any]]]:
    """Splits rows into those taken and those refused.

    The warehouse's columns, called `names`, come first in `rows`, in that order, under any names. Each
    refused row is a dict of position, raw (the record, or the row as JSON) and reason. InputError for a
    refused row if the filter is all_or_nothing.
    """
    refusals = list(_refusals(row_filter, options, names, rows))
    is_refused = reduce(pc.or_, (mask for mask, _ in refusals)) if refusals else None
    if is_refused is None or not pc.any(is_refused).as_py():
        return rows, []
    refused: list[dict[str, Any]] = []
    for i in np.flatnonzero(np.asarray(is_refused)).tolist():
        record = rows.columns[-3:] if row_filter.reasons else [pa.nulls(rows.num_rows)] * 3
        position, raw, reason = (_text(readable(column[i])) for column in record)
        if raw is None:
            values = {name: readable(column[i]) for name, column in zip(names, rows.columns, strict=False)}
            raw = json.dumps(values, default=str)
        reason = reason or next(text for mask, text in refusals if text and mask[i].as_py())
        refused.append({"position": position, "raw": raw, "reason": reason})
    if row_filter.all_or_nothing:
        first = refused[0]
        raise InputError(
            f"a row of the batch cannot be taken: {first['reason']}: {first['raw'][:_SHOWN_CHARACTERS]}. "
            "Nothing was changed. Correct such rows in the input, or leave them out."
        )
    return rows.filter(pc.invert(is_refused)), refused


def _refusals(
    row_filter: RowFilter, options: Options, names: list[str], rows: pa.RecordBatch
) -> Iterator[tuple[pa.BooleanArray, str]]:
    """Masks of refused rows, each with the reason; an empty reason if the rows have their own."""
    if row_filter.reasons:
        yield rows.column(rows.num_columns - 1).is_valid(), ""
    for measure in _bounded(options):
        least, most = measure.bounds or (0, 0)
        column = encode_values(measure, rows.column(names.index(measure.name)))
        outside = ~column.null & ((column.stored < least) | (column.stored > most))
        yield pa.array(outside), f"{measure.name} lies outside the years 1 to 9999"
    if row_filter.latest is not None and options.time_column is not None:
        yield _too_far_ahead(
            row_filter.latest, options.time_column, rows.column(names.index(options.time_column.name))
        )


def _bounded(options: Options) -> list[Measure]:
    """The columns that accept only a part of the values of their type: times and dates."""
    key = options.key_column
    columns = [options.time_column, *options.measures]
    if key is not None and key.type in {"date", "timestamp"}:
        columns.append(Measure(key.name, key.type))
    return list(dict.fromkeys(column for column in columns if column is not None and column.bounds))


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
