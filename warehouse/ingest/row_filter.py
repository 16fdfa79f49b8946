"""Which rows of a batch are taken, and what is told of those that are not.

A row is refused where its parser says so, where a time, a measure or the key is a timestamp or a date
outside the years 1 to 9999, and where its time is further ahead of the clock than a stream allows. Rows of a
stream that are refused go to `rejected`; a bulk batch is taken whole or not at all.
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

_SHOWN = 200  # characters of a record in an error


@dataclass(frozen=True, slots=True)
class Sieve:
    """Which rows are refused, beside those of times that no warehouse takes.

    `latest` is the last time that is taken, in microseconds since 1970; None takes any. Where
    `reasons` is set the rows have three columns more: where the source has the record, the record
    itself, and why it is refused, NULL where it is not. With `whole` a row that is refused is an
    InputError.
    """

    latest: int | None = None
    reasons: bool = False
    whole: bool = False


TAKE_ALL = Sieve()
WHOLE = Sieve(whole=True)


def sift(
    sieve: Sieve, options: Options, names: list[str], rows: pa.RecordBatch
) -> tuple[pa.RecordBatch, list[dict[str, Any]]]:
    """The rows that are taken, and of the others where each was, what it was and why it is refused.

    `names` are those of the warehouse's columns, which come first in `rows`, by whatever name.
    """
    found = list(_refusals(sieve, options, names, rows))
    bad = reduce(pc.or_, (mask for mask, _ in found)) if found else None
    if bad is None or not pc.any(bad).as_py():
        return rows, []
    refused: list[dict[str, Any]] = []
    for i in np.flatnonzero(np.asarray(bad)).tolist():
        told = rows.columns[-3:] if sieve.reasons else [pa.nulls(rows.num_rows)] * 3
        position, raw, reason = (_text(readable(column[i])) for column in told)
        if raw is None:
            own = {name: readable(column[i]) for name, column in zip(names, rows.columns, strict=False)}
            raw = json.dumps(own, default=str)
        reason = reason or next(why for mask, why in found if why and mask[i].as_py())
        refused.append({"position": position, "raw": raw, "reason": reason})
    if sieve.whole:
        raise InputError(
            f"a row of the batch cannot be taken: {refused[0]['reason']}: {refused[0]['raw'][:_SHOWN]}. "
            "Nothing was changed. Mend such rows in the input, or leave them out."
        )
    return rows.filter(pc.invert(bad)), refused


def _refusals(
    sieve: Sieve, options: Options, names: list[str], rows: pa.RecordBatch
) -> Iterator[tuple[pa.BooleanArray, str]]:
    """Which rows are refused, and why; no text where the rows tell it themselves."""
    if sieve.reasons:
        yield rows.column(rows.num_columns - 1).is_valid(), ""
    for one in _bounded(options):
        least, most = one.bounds or (0, 0)
        column = encode_values(one, rows.column(names.index(one.name)))
        outside = ~column.null & ((column.stored < least) | (column.stored > most))
        yield pa.array(outside), f"{one.name} lies outside the years 1 to 9999"
    if sieve.latest is not None and options.time_column is not None:
        yield _too_far_ahead(
            sieve.latest, options.time_column, rows.column(names.index(options.time_column.name))
        )


def _bounded(options: Options) -> list[Measure]:
    """The columns of which not every value is taken."""
    key = options.key_column
    ordered = [options.time_column, *options.measures]
    if key is not None and key.type in {"date", "timestamp"}:
        ordered.append(Measure(key.name, key.type))
    return list(dict.fromkeys(one for one in ordered if one is not None and one.bounds))


def _too_far_ahead(latest: int, time: Measure, array: pa.Array) -> tuple[pa.BooleanArray, str]:
    column = encode_values(time, array)
    ahead: NDArray[np.bool_] = ~column.null & (epoch_micros(time, column.stored) > latest)
    return pa.array(ahead), f"{time.name} lies too far in the future, after {np.datetime64(latest, 'us')}Z"


def readable(value: pa.Scalar) -> Any:
    """A value as Python has it; as text what Python has no value for, such as the year 12000."""
    if not value.is_valid:
        return None
    if isinstance(value, pa.StructScalar):
        return {name: readable(value[at]) for at, name in enumerate(field.name for field in value.type)}
    if isinstance(value, pa.ListScalar):  # a map is one too
        return [readable(one) for one in value.values]
    if pa.types.is_temporal(value.type):
        unit: Any = "D" if pa.types.is_date(value.type) else value.type.unit
        return str(np.datetime64(value.value, unit))
    if pa.types.is_string(value.type) or pa.types.is_large_string(value.type):
        return _text(value.as_buffer().to_pybytes())
    return value.as_py()


def _text(value: Any) -> Any:
    """Text; bytes that are none are written as escapes."""
    if isinstance(value, bytes | bytearray):
        return value.decode(errors="backslashreplace")
    return value if value is None else str(value)
