"""JSON records of the usual form, all at once: flat objects with the fields of the first one, in its order.

Programs write such files, and one regular expression finds the fields of all their records, several times
faster than a decoder. It accepts less than JSON is: no escapes, no repeated names, each value of the kind
that is usual for its column. What it does not match, and what a type refuses, is left to json_records.py. So
this way is quick and decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidemark.warehouse.columns.value_encoding import as_numpy_bools
from tidemark.warehouse.text.values import parse_texts

_SPACE = r"[ \t]*"
_WHOLE = r"0|-?[1-9][0-9]{0,17}"  # -0 is left out: as a whole number it is 0
_NUMBER = rf"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)|{_WHOLE}"
_TEXT = r'"[^"\\\x00-\x1f]*"'
_PLAIN_NAME = re.compile(r'[^"\\\x00-\x1f]*')

# Rows, and which of them were read; the rows that were not read are undefined.
Quick = tuple[pa.RecordBatch, NDArray[np.bool_]]


def quick_rows(records: pa.Array, schema: pa.Schema, names: Sequence[str]) -> Quick | None:
    """The records (binary) as rows of the schema; None if most are of another form.

    names    the fields of the first record, in their order: columns of the schema
    """
    pattern = _pattern(schema, names)
    if pattern is None:
        return None
    try:
        found = pc.extract_regex(records.cast(pa.string()), pattern=pattern)
    except pa.ArrowInvalid:  # no UTF-8
        return None
    if found.null_count > len(found) // 2:
        return None
    done: NDArray[np.bool_] = np.array(as_numpy_bools(found.is_valid()))
    columns = dict.fromkeys(schema.names)
    for number, name in enumerate(names):
        kind = schema.field(name).type
        texts = pc.struct_field(found, [number])
        texts = pc.if_else(pc.equal(texts, "null"), pa.scalar(None, pa.string()), texts)
        if _value(kind) == _TEXT:
            texts = pc.binary_slice(texts.cast(pa.binary()), 1, -1).cast(pa.string())
        columns[name], refused = parse_texts(texts, kind)
        done[refused] = False
    arrays = [
        pa.nulls(len(records), field.type) if columns[field.name] is None else columns[field.name]
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema), done


def _pattern(schema: pa.Schema, names: Sequence[str]) -> str | None:
    """Matches an object with these fields, a group each; None for a column that is not of a simple kind."""
    fields = []
    for number, name in enumerate(names):
        value = _value(schema.field(name).type)
        if value is None or not _PLAIN_NAME.fullmatch(name):
            return None
        group = f"(?P<c{number}>{value}|null)"
        fields.append(f'{_SPACE}"{re.escape(name)}"{_SPACE}:{_SPACE}{group}{_SPACE}')
    return rf"^{_SPACE}\{{{','.join(fields)}\}}[ \t\r\n]*$"


def _value(kind: pa.DataType) -> str | None:
    """Matches the usual JSON value of a column of the type."""
    if pa.types.is_integer(kind):
        return _WHOLE
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _NUMBER
    if pa.types.is_boolean(kind):
        return "true|false"
    if pa.types.is_string(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _TEXT
    return None
