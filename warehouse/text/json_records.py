"""JSON records, strictly (RFC 8259): one object in UTF-8, no name twice in an object, no half surrogate pair.

A field has the name of a column, upper and lower case count; an object has at least one such field. Other
fields are refused in a file, and ignored in a record of Kafka.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from tidemark.warehouse.text.json_lines import quick_rows
from tidemark.warehouse.text.json_values import Real, parse_values, written
from tidemark.warehouse.text.records import Parsed, TextColumns, as_texts, shown
from tidemark.warehouse.text.values import why_refused


@dataclass(frozen=True, slots=True)
class JsonRecords:
    """Parses JSON records into columns; `others` says whether fields that are no columns are ignored."""

    columns: TextColumns
    others: bool = True

    def parse(self, records: pa.Array) -> Parsed:
        """The records (binary, one object each) as rows."""
        schema = self.columns.schema
        first = next(iter(decoded_objects(records[:1])), None)
        usual = first and first.keys() <= set(schema.names)
        quick = quick_rows(records, schema, list(first)) if first and usual else None
        if quick is None:
            return self._decoded(records)
        rows, done = quick
        left = np.flatnonzero(~done)
        if not len(left):
            return Parsed(rows, {})
        others = self._decoded(records.take(pa.array(left)))
        place = np.arange(len(records))
        place[left] = len(records) + np.arange(len(left))
        both = pa.Table.from_batches([rows, others.rows]).combine_chunks().to_batches()[0]
        refused = {int(left[row]): reason for row, reason in others.refused.items()}
        return Parsed(both.take(pa.array(place)), refused)

    def _decoded(self, records: pa.Array) -> Parsed:
        """As `parse`, for records of any form, one by one."""
        is_column = frozenset(self.columns.schema.names)
        malformed = f"no json record of the columns {self.columns.said}"
        objects, refused = each_object(records, malformed)
        for row, record in enumerate(objects):
            if record is None or record.keys() == is_column:
                continue
            if fault := self._fault(record, malformed):
                objects[row], refused[row] = None, fault
        arrays = []
        for field, type_name in zip(self.columns.schema, self.columns.type_names, strict=True):
            values = [None if record is None else record.get(field.name) for record in objects]
            array, rows = parse_values(values, field.type)
            arrays.append(array)
            for row in rows:
                refused.setdefault(row, why_refused(field, type_name, _shown(values[row])))
        return Parsed(pa.RecordBatch.from_arrays(arrays, schema=self.columns.schema), refused)

    def _fault(self, record: dict[str, Any], malformed: str) -> str:
        """Why a record is refused: no column, another case, or a field that is none; else empty."""
        names = self.columns.schema.names
        if not self.others or not record.keys() >= set(names):
            by_lower_name = {name.lower(): name for name in names}
            for name in record.keys() - set(names):
                column = by_lower_name.get(name.lower())
                if column is not None and column not in record:
                    return f"the field {_shown(name)} is not the column {column}: upper and lower case count"
                if not self.others:
                    columns = ", ".join(names)
                    return (
                        f"the field {_shown(name)} is no column of the warehouse: {columns}. A load with "
                        "evolve=True, or --evolve, adds it"
                    )
        return f"{malformed}: it has none of them" if record.keys().isdisjoint(names) else ""


class _Refused(Exception):
    """The record is refused; the text is the reason. The decoder of JSON passes it on from its hooks."""


class _Malformed(Exception):
    """The record is no JSON object; the text is the detail of the reason."""


def decoded_objects(records: pa.Array) -> list[dict[str, Any] | None]:
    """The objects of the records, None for those that are no JSON."""
    return each_object(records, "")[0]


def each_object(records: pa.Array, malformed: str) -> tuple[list[dict[str, Any] | None], dict[int, str]]:
    """The objects of `decoded_objects`, and why the other records are none, by row."""
    texts, refused = as_texts(records, malformed)
    objects: list[dict[str, Any] | None] = []
    for row, text in enumerate(texts):
        try:
            objects.append(None if text is None else _decoded(text))
            continue
        except _Refused as error:
            refused[row] = str(error)
        except _Malformed as error:
            refused[row] = f"{malformed}: {error}"
        except ValueError as error:  # thousands of digits; after ';' it is about Python's settings
            refused[row] = f"{malformed}: {str(error).partition(';')[0]}"
        objects.append(None)
    return objects, refused


def _decoded(text: str) -> dict[str, Any]:
    try:
        record = _DECODE(text)
    except RecursionError:
        raise _Malformed("nested too deep") from None
    except json.JSONDecodeError as error:
        raise _Malformed(f"{error.msg} at character {error.pos}") from None
    if type(record) is not dict:
        raise _Malformed("no object")
    if "\\u" in text:
        _check_surrogates(record)
    return record


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise _Refused(f"the field {_shown(duplicate)} is there twice")
    return record


def _no_constant(name: str) -> NoReturn:
    raise _Malformed(f"{name} is no number of JSON")


_DECODE = json.JSONDecoder(object_pairs_hook=_object, parse_float=Real, parse_constant=_no_constant).decode


def _check_surrogates(record: dict[str, Any]) -> None:
    """Refuses half of a surrogate pair, which JSON can write as an escape."""
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _Malformed("half of a surrogate pair, which is no character") from None


def _shown(value: Any) -> str:
    try:
        return shown(value if isinstance(value, str) else written(value))
    except RecursionError:
        return "a value that is nested too deep"
