"""JSON lines without Spark: one object a line, strictly JSON (`stream/strict_text.py`).

What is taken means the same to Spark's reader. What that converts on the way (a number in a column of text, a
number with a fraction in one of integers) is refused here. A column that an object does not have is NULL, a
field that is no column is refused as unknown, and empty lines are passed by.
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

from tidemark.jobs.inputs.text_columns import Unfit, typed
from tidemark.jobs.inputs.text_files import Block, blocks
from tidemark.stream.strict_text import Refused, Strict
from tidemark.warehouse.execution.arrow_inputs import ArrowRows

_ROWS = 2**13  # of a batch: their objects are in memory
_SECOND_US = 10**6
_NAN = {"NaN": "NaN", "INF": "Inf", "+INF": "Inf", "-INF": "-Inf"}
_NAN |= {"Infinity": "Inf", "+Infinity": "Inf", "-Infinity": "-Inf"}


def json_rows(paths: list[Path], types: pa.Schema, said: dict[str, str]) -> ArrowRows:
    """The rows of the files; `said` are the types as errors name them.

    All lines are looked at once before the first batch is there: bad ones are InputErrors then.
    """
    parse = Strict("json", tuple((field.name, field.type, said[field.name]) for field in types)).parser()
    names: dict[str, None] = {}
    for _, found in _objects(paths, parse):
        for one in found:
            names.update(dict.fromkeys(one))
    known = {field.name: field.type for field in types}
    schema = pa.schema([(name, known.get(name, pa.string())) for name in names])

    def read() -> Iterator[pa.RecordBatch]:
        for block, found in _objects(paths, parse):
            columns = [_column(block, field, [one.get(field.name) for one in found]) for field in schema]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return ArrowRows(schema, read)


def _objects(
    paths: list[Path], parse: Callable[[bytes], dict[str, Any]]
) -> Iterator[tuple[Block, list[dict[str, Any]]]]:
    for block in chain.from_iterable(map(blocks, paths)):
        held = []
        for number, line in enumerate(block.text.split(b"\n")):
            if not line.strip():
                continue
            try:
                held.append(parse(line))
            except Refused as error:
                raise block.refuse(number, str(error)) from error
            if len(held) == _ROWS:
                yield block, held
                held = []
        if held:
            yield block, held


def _column(block: Block, field: pa.Field, values: list[Any]) -> pa.Array:
    try:
        return values_of(values, field.type)
    except Unfit as error:
        reason = f"in the lines from there on, {field.name} is no {field.type}: {error}"
        raise block.refuse(0, reason) from error


def values_of(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Values of JSON as a column of the type; Unfit where one is none. A number with a fraction is `Real`."""
    if pa.types.is_nested(kind):
        return _nested(values, kind)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        _only(values, bool if pa.types.is_boolean(kind) else int)
        return _array(values, kind)
    if pa.types.is_floating(kind):
        return _floats(values, kind)
    if pa.types.is_decimal(kind):
        told = [one if one is None or type(one) is str else str(one) for one in values]
        _refuse(values, [type(one) is str or type(one) is bool for one in values])
        return typed(pa.array(told, pa.string()), kind)
    if pa.types.is_timestamp(kind):
        seconds = _array([one * _SECOND_US if type(one) is int else None for one in values], pa.int64())
        texts = [None if type(one) is int else one for one in values]
        _only(texts, str)
        return pc.coalesce(typed(pa.array(texts, pa.string()), kind), seconds.cast(kind))
    _only(values, str)
    if pa.types.is_binary(kind):
        return pa.array([_decoded(at, one) for at, one in enumerate(values)], kind)
    return typed(pa.array(values, pa.string()), kind)


def _nested(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_struct(kind):
        _only(values, dict)
        parts = [values_of([one and one.get(part.name) for one in values], part.type) for part in kind]
        mask = pa.array([one is None for one in values])
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    if pa.types.is_list(kind):
        _only(values, list)
        items = values_of(list(chain.from_iterable(one or () for one in values)), kind.value_type)
        return pa.ListArray.from_arrays(_offsets(values), items).cast(kind)
    _only(values, dict)
    keys = typed(pa.array([key for one in values for key in one or ()], pa.string()), kind.key_type)
    items = values_of([item for one in values for item in (one or {}).values()], kind.item_type)
    return pa.MapArray.from_arrays(_offsets(values), keys, items).cast(kind)


def _only(values: list[Any], kind: type) -> None:
    """Unfit where a value is neither NULL nor of that type: True is no int, and a number is no text."""
    _refuse(values, [one is not None and type(one) is not kind for one in values])


def _refuse(values: list[Any], bad: list[bool]) -> None:
    if True in bad:
        at = bad.index(True)
        raise Unfit(at, str(values[at])[:200])


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, OverflowError):
        pass
    for at, one in enumerate(values):
        try:
            pa.array([one], kind)
        except (pa.ArrowInvalid, OverflowError):
            raise Unfit(at, str(one)[:200]) from None
    raise AssertionError("a column is none, and each of its values is one")


def _floats(values: list[Any], kind: pa.DataType) -> pa.Array:
    _refuse(
        values,
        [
            type(one) is bool or (type(one) is str and one not in _NAN) or isinstance(one, dict | list)
            for one in values
        ],
    )
    found = [None if one is None else float(_NAN[one] if type(one) is str else one) for one in values]
    return pa.array(found, pa.float64()).cast(kind, safe=False)


def _offsets(values: list[Any]) -> pa.Array:
    """Where each list begins, NULL for one that is NULL, and the end of the last."""
    counts = [0 if one is None else len(one) for one in values]
    starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    mask = np.array([one is None for one in values] + [False])
    return pa.array(starts, pa.int32(), mask=mask)


def _decoded(at: int, text: str | None) -> bytes | None:
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except binascii.Error:
        raise Unfit(at, text or "") from None
