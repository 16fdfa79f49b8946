"""Rows of a caller with tokens in place of the values of private columns.

Each task makes the tokens of a batch of rows before it does anything else with it, so no file of a task and
no message of it has a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from tidemark.warehouse.columns.arrow_buffers import binary_array
from tidemark.warehouse.columns.column_types import find_column_type
from tidemark.warehouse.columns.keys import as_names
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.execution.executors import Input, RowsTask
from tidemark.warehouse.private.secrets import Secret, secret_of
from tidemark.warehouse.private.tokens import canonical
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.text.records import hidden


def with_tokens(rows: Input, options: Options) -> Input:
    """The rows with tokens in the private columns; as they are, if there is none.

    InputError if this process does not have the warehouse's secret.
    """
    if not options.private:
        return rows
    return TokenRows(rows, frozenset(options.private), secret_of(options.fingerprint))


def text_columns(events: DeltaTable, options: Options) -> pa.Schema:
    """The schema of the opened table `events` as text is read by it, see `as_text`.

    InputError for a warehouse with private columns and no columns yet: the errors of a text whose columns are
    to be chosen would show it.
    """
    if options.private and not options.columns:
        raise InputError(
            "the warehouse has private columns, and its columns are not known yet. Create it with a schema, "
            "or load Parquet, Arrow data or a DataFrame first; then it takes text."
        )
    return as_text(options.names.of_schema(pa.schema(events.schema())), options)


def as_text(schema: pa.Schema, options: Options) -> pa.Schema:
    """Columns of the warehouse as text is read by them: private ones are text, which no error shows."""
    return pa.schema([hidden(one.name) if one.name in options.private else one for one in schema])


@dataclass(frozen=True, slots=True)
class TokenRows:
    """An input whose private columns have tokens; see `Input`."""

    rows: Input
    private: frozenset[str]
    secret: Secret

    def fields(self, *excluded: str) -> list[Field]:
        """See `Input.fields`; InputError as `as_token_field`."""
        return [
            as_token_field(field) if field.name in self.private else field
            for field in self.rows.fields(*excluded)
        ]

    def each(self, names: Sequence[str], task: RowsTask) -> list[Any]:
        """See `Input.each`."""
        places = tuple(place for place, name in enumerate(names) if name in self.private)
        return self.rows.each(names, MakeTokens(places, self.secret, task))


@dataclass(frozen=True, slots=True)
class MakeTokens:
    """Runs a task on rows with tokens in the columns at `places`."""

    places: tuple[int, ...]
    secret: Secret
    task: RowsTask

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
        """See `RowsTask.run`."""
        return self.task.run(map(self._of, batches))

    def _of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            token_column(self.secret, column) if place in self.places else column
            for place, column in enumerate(rows.columns)
        ]
        return pa.RecordBatch.from_arrays(columns, rows.schema.names)


def token_column(secret: Secret, values: pa.Array) -> pa.Array:
    """The tokens of text, bytes or whole numbers, NULL for NULL, as binary. Each different value once."""
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), pa.binary())
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    coded = values.dictionary_encode()
    names = coded.dictionary
    if not pa.types.is_integer(names.type) and not pa.types.is_decimal(names.type):
        names = as_names(names)
    tokens = binary_array([secret.token(canonical(_number(one)) or b"") for one in names.to_pylist()])
    return tokens.take(coded.indices).cast(pa.binary())


def _number(value: Any) -> Any:
    """A decimal, as which unsigned integers of 64 bits come, as an int; others as they are."""
    return value if isinstance(value, int | bytes) else int(value)


def as_token_field(field: Field) -> Field:
    """The field of the tokens of a column; InputError unless it is text, binary or whole numbers."""
    kind = find_column_type(field.type.type) if isinstance(field.type, PrimitiveType) else None
    if kind is None or not (kind.is_text or kind.is_integer or kind.name == "decimal(20,0)"):
        raise InputError(
            f"the private column {field.name!r} is of type {field.type}, expected text, binary or whole "
            "numbers. Cast it to string in the input."
        )
    return Field(field.name, PrimitiveType("binary"))
