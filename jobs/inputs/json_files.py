"""JSON lines without Spark: one object per line, parsed strictly (`stream/strict_text.py`).

Spark's reader would read every accepted line as the same values. Values that Spark would convert (a number in
a text column, a fraction in an integer column) are refused. A column that an object lacks is NULL. A field
that is not a column of the warehouse becomes a text column, which the load refuses. Blank lines are skipped.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.jobs.inputs.text_columns import BadValue, parse_column
from tidemark.jobs.inputs.text_files import Block, read_blocks
from tidemark.stream.strict_text import SECOND_US, Refused, StrictParser
from tidemark.warehouse.execution.arrow_inputs import ArrowRows

_BATCH_ROWS = 2**13  # the objects of one batch are in memory
# Texts that Spark's reader takes as floating numbers, and as float() reads them.
_FLOAT_TEXTS = {"NaN": "NaN", "INF": "Inf", "+INF": "Inf", "-INF": "-Inf"}
_FLOAT_TEXTS |= {"Infinity": "Inf", "+Infinity": "Inf", "-Infinity": "-Inf"}


def json_rows(paths: list[Path], types: pa.Schema, type_names: dict[str, str]) -> ArrowRows:
    """The rows of the files; `type_names` are the types as error texts name them.

    All lines are parsed once at the call, which raises InputError for bad ones, and again to read the rows.
    """
    columns = tuple((field.name, field.type, type_names[field.name]) for field in types)
    parse = StrictParser("json", columns).parser()
    names: dict[str, None] = {}
    for _, objects in _parse_lines(paths, parse):
        for record in objects:
            names.update(dict.fromkeys(record))
    known_types = {field.name: field.type for field in types}
    schema = pa.schema([(name, known_types.get(name, pa.string())) for name in names])

    def read() -> Iterator[pa.RecordBatch]:
        for block, objects in _parse_lines(paths, parse):
            arrays = [
                _column(block, field, [record.get(field.name) for record in objects]) for field in schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return ArrowRows(schema, read)


def _parse_lines(
    paths: list[Path], parse: Callable[[bytes], dict[str, Any]]
) -> Iterator[tuple[Block, list[dict[str, Any]]]]:
    """Batches of at most _BATCH_ROWS objects, each with the block that its lines are in."""
    for block in chain.from_iterable(map(read_blocks, paths)):
        objects = []
        for number, line in enumerate(block.text.split(b"\n")):
            if not line.strip():
                continue
            try:
                objects.append(parse(line))
            except Refused as error:
                raise block.refuse(number, str(error)) from error
            if len(objects) == _BATCH_ROWS:
                yield block, objects
                objects = []
        if objects:
            yield block, objects


def _column(block: Block, field: pa.Field, values: list[Any]) -> pa.Array:
    try:
        return to_array(values, field.type)
    except BadValue as error:
        reason = f"in the lines from there on, {field.name} is not of type {field.type}: {error}"
        raise block.refuse(0, reason) from error


def to_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """JSON values as an array of the type; BadValue for a value of another type.

    Numbers with a fraction or an exponent come as `Real`.
    """
    if pa.types.is_nested(kind):
        return _nested(values, kind)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        _check_type(values, bool if pa.types.is_boolean(kind) else int)
        return _array(values, kind)
    if pa.types.is_floating(kind):
        return _floats(values, kind)
    if pa.types.is_decimal(kind):
        texts = [value if value is None or type(value) is str else str(value) for value in values]
        _refuse_first(values, [type(value) is str or type(value) is bool for value in values])
        return parse_column(pa.array(texts, pa.string()), kind)
    if pa.types.is_timestamp(kind):
        epochs = [value * SECOND_US if type(value) is int else None for value in values]
        numbers = _array(epochs, pa.int64())
        texts = [None if type(value) is int else value for value in values]
        _check_type(texts, str)
        return pc.coalesce(parse_column(pa.array(texts, pa.string()), kind), numbers.cast(kind))
    _check_type(values, str)
    if pa.types.is_binary(kind):
        return pa.array([_decode_base64(row, value) for row, value in enumerate(values)], kind)
    return parse_column(pa.array(values, pa.string()), kind)


def _nested(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_struct(kind):
        _check_type(values, dict)
        children = [
            to_array([value and value.get(child.name) for value in values], child.type) for child in kind
        ]
        mask = pa.array([value is None for value in values])
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if pa.types.is_list(kind):
        _check_type(values, list)
        items = to_array(list(chain.from_iterable(value or () for value in values)), kind.value_type)
        return pa.ListArray.from_arrays(_offsets(values), items).cast(kind)
    _check_type(values, dict)
    names = pa.array([name for value in values for name in value or ()], pa.string())
    keys = parse_column(names, kind.key_type)
    items = to_array([item for value in values for item in (value or {}).values()], kind.item_type)
    return pa.MapArray.from_arrays(_offsets(values), keys, items).cast(kind)


def _check_type(values: list[Any], kind: type) -> None:
    """BadValue for the first value that is neither None nor exactly of the type: a bool is not an int."""
    _refuse_first(values, [value is not None and type(value) is not kind for value in values])


def _refuse_first(values: list[Any], bad: list[bool]) -> None:
    """BadValue for the first value that is marked as bad."""
    if True in bad:
        row = bad.index(True)
        raise BadValue(row, str(values[row])[:200])


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, OverflowError):
        pass
    for row, value in enumerate(values):  # find the value that failed
        try:
            pa.array([value], kind)
        except (pa.ArrowInvalid, OverflowError):
            raise BadValue(row, str(value)[:200]) from None
    raise AssertionError("the conversion of the column failed, but that of each of its values did not")


def _floats(values: list[Any], kind: pa.DataType) -> pa.Array:
    bad = [
        type(value) is bool
        or (type(value) is str and value not in _FLOAT_TEXTS)
        or isinstance(value, dict | list)
        for value in values
    ]
    _refuse_first(values, bad)
    numbers = [
        None if value is None else float(_FLOAT_TEXTS[value] if type(value) is str else value)
        for value in values
    ]
    return pa.array(numbers, pa.float64()).cast(kind, safe=False)


def _offsets(values: list[Any]) -> pa.Array:
    """The offsets of a list array, one more than there are values; NULL for a value that is None.

    [[1, 2], None, [3]] has the offsets 0, NULL, 2, 3.
    """
    counts = [0 if value is None else len(value) for value in values]
    starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    mask = np.array([value is None for value in values] + [False])
    return pa.array(starts, pa.int32(), mask=mask)


def _decode_base64(row: int, text: str | None) -> bytes | None:
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except binascii.Error:
        raise BadValue(row, text or "") from None
