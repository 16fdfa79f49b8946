"""Change feeds: the changes of a table as rows that come and rows that leave.

Two forms are read:

    Delta       rows with the columns of the warehouse and `_change_type`: insert and update_postimage come,
                delete and update_preimage leave. Columns that begin with `_commit_` are left out
    Debezium    JSON objects with `op`, `before` and `after`, alone or in `payload`: c and r come, d leaves, u
                does both. Whole rows are needed in `before`. Empty records are ignored: Kafka keeps one
                after the deletion of a row

Netting. Each row is counted: +1 each time it comes, -1 each time it leaves. In the end, rows with a count
above 0 come, rows with a count below 0 leave. So of a row that changes several times in one feed, the first
state leaves and the last one comes. The order of the changes does not matter.

The feed is held in memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from deltalake import Field
from numpy.typing import NDArray

from tidemark.warehouse.columns.arrow_buffers import arrow_array, binary_array
from tidemark.warehouse.columns.schema import column_types
from tidemark.warehouse.errors import InputError, shortened
from tidemark.warehouse.execution.arrow_inputs import are_paths
from tidemark.warehouse.execution.executors import LocalExecutor
from tidemark.warehouse.execution.input_files import formats_of, input_files
from tidemark.warehouse.ingest.private_rows import as_text, with_tokens
from tidemark.warehouse.removals.given_rows import cast_input, given_input, schema_of
from tidemark.warehouse.removals.row_values import RowValues
from tidemark.warehouse.text.files import blocks, read_chunks
from tidemark.warehouse.text.json_records import each_object
from tidemark.warehouse.text.json_values import parse_values
from tidemark.warehouse.text.records import TextColumns, shown
from tidemark.warehouse.work import Work

CHANGE = "_change_type"
_COMMIT = "_commit_"  # begins the names of Delta's other columns
_SIGNS = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}
_OPS = {"c": ("after",), "r": ("after",), "u": ("before", "after"), "d": ("before",)}
_WHOLE_ROWS = "Let the source write whole rows: in PostgreSQL, REPLICA IDENTITY FULL."

Signs: TypeAlias = NDArray[np.int64]


def net_changes(work: Work, changes: Any) -> tuple[pa.Table, pa.RecordBatch]:
    """The rows that come and the rows that leave by a feed, with the warehouse's columns and types.

    InputError for a feed of neither form, and for a change without one of its rows.
    """
    schema = schema_of(work, [name for name, _ in work.options.columns])
    rows, signs = (_json_changes if is_json(changes) else _delta_changes)(work, changes, schema)
    values = RowValues.of(rows, nulls_match=True)
    places = values.places(pa.Table.from_batches([rows]))
    net = np.zeros(values.rows.num_rows, np.int64)
    np.add.at(net, places, signs)
    every = np.arange(len(net))
    came = values.rows.take(arrow_array(np.repeat(every, np.maximum(net, 0))))
    gone = values.rows.take(arrow_array(np.repeat(every, np.maximum(-net, 0))))
    return pa.Table.from_batches([came]), gone


def is_json(changes: Any) -> bool:
    """Whether these are paths of JSON lines, by their names."""
    paths = [changes] if isinstance(changes, str | os.PathLike) else changes
    return are_paths(paths) and all(formats_of(os.fspath(one)) == {"json"} for one in paths)


def check_feed(fields: list[Field], names: Sequence[str]) -> None:
    """InputError unless these are the columns of a feed of Delta, of a warehouse with the columns `names`."""
    types = {name: kind for name, kind in column_types(fields).items() if not name.startswith(_COMMIT)}
    if types.pop(CHANGE, None) != "string" or set(types) != set(names):
        raise InputError(
            f"a change feed has the columns {', '.join(names)} and {CHANGE}, or is JSON lines with "
            f"op, before and after; got {', '.join(types) or 'none'}. Nothing was changed."
        )


def _delta_changes(work: Work, changes: Any, schema: pa.Schema) -> tuple[pa.RecordBatch, Signs]:
    given = given_input(work, changes)
    check_feed(given.fields(), schema.names)
    with_change = schema.append(pa.field(CHANGE, pa.string()))
    rows = cast_input(work.options, given, with_change)
    kinds = rows.column(CHANGE).to_pylist()
    unknown = next((one for one in kinds if one not in _SIGNS), "")
    if unknown != "":
        raise InputError(
            f"{CHANGE} must be one of {', '.join(_SIGNS)}, got {shortened(unknown)}. Nothing was changed."
        )
    return rows.select(schema.names), np.array([_SIGNS[one] for one in kinds], np.int64)


def _json_changes(work: Work, changes: Any, schema: pa.Schema) -> tuple[pa.RecordBatch, Signs]:
    options = work.options
    rows, signs = _envelopes(changes, as_text(schema, options))
    if options.private:
        given = LocalExecutor(work.store.tuning).input(pa.Table.from_batches([rows]))
        rows = cast_input(options, with_tokens(given, options), schema)
    return rows, signs


def _envelopes(changes: Any, schema: pa.Schema) -> tuple[pa.RecordBatch, Signs]:
    lines, places = list[bytes](), list[str]()
    for path in input_files(changes):
        for block in blocks(str(path), read_chunks(path), "json"):
            lines += block.records.to_pylist()
            places += [f"line {number} of {path}" for number in block.lines()[:-1]]
    return rows_of_records(lines, places, schema)


def rows_of_records(
    records: Sequence[bytes], named: Sequence[str], schema: pa.Schema
) -> tuple[pa.RecordBatch, Signs]:
    """The rows of changes as Debezium writes them, with 1 for each that comes and -1 for each that leaves.

    records   JSON objects; empty ones are left out
    named     where each record is, for errors
    schema    the columns; if one is hidden, errors show nothing of a record

    InputError for a record that is no change, and for one without its whole rows.
    """
    hides = TextColumns(schema).is_hidden
    images, signs, places = list[dict[str, Any]](), list[int](), list[str]()
    changes, unread = each_object(binary_array(records).cast(pa.binary()), "malformed")
    for row, (record, where, change) in enumerate(zip(records, named, changes, strict=True)):
        reason = unread.get(row)
        for name, image in _images(change, where, reason, hides=hides) if record.strip() else ():
            images.append(image)
            signs.append(1 if name == "after" else -1)
            places.append(f"{name!r} in {where}")
            if image.keys() != {*schema.names}:
                got = "others" if hides else ", ".join(image) or "none"
                raise InputError(
                    f"{places[-1]} must have the columns {', '.join(schema.names)}, got {got}. Nothing was "
                    f"changed. {_WHOLE_ROWS}"
                )
    columns = []
    for field in schema:
        column, refused = parse_values([image[field.name] for image in images], field.type)
        if len(refused):
            got = "another value" if hides else shown(str(images[refused[0]][field.name]))
            raise InputError(
                f"{field.name} of {places[refused[0]]} must be of type {field.type}, got {got}. Nothing was "
                "changed."
            )
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema), np.array(signs, np.int64)


def _images(
    change: dict[str, Any] | None, where: str, reason: str | None, *, hides: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a change, each as ('before' or 'after', its fields); `reason`: why it is None."""
    if change is not None and isinstance(change.get("payload"), dict):
        change = change["payload"]
    op = None if change is None else change.get("op")
    if change is None or not isinstance(op, str) or op not in _OPS:
        got = "none of these" if hides else f"none of these: {reason}" if reason else f"op {shortened(op)}"
        raise InputError(
            f"{where} must be a JSON object with op {', '.join(_OPS)}, got {got}. Nothing was changed."
        )
    for name in _OPS[op]:
        if not isinstance(image := change.get(name), dict):
            raise InputError(
                f"{where} has op {shortened(op)} without {name!r}. Nothing was changed. {_WHOLE_ROWS}"
            )
        yield name, image
