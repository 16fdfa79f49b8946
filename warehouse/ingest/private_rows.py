"""Rows of a caller with tokens in place of the values of private columns.

Each task makes the tokens of a batch of rows before it does anything else with it, so no file of a task and
no message of it has a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from tidemark.warehouse.columns.arrow_buffers import binary_array
from tidemark.warehouse.columns.column_types import find_column_type
from tidemark.warehouse.columns.keys import as_names
from tidemark.warehouse.columns.value_encoding import single_array
from tidemark.warehouse.errors import Contended, InputError
from tidemark.warehouse.execution.executors import Input, RowsTask
from tidemark.warehouse.private.secrets import Secret, secret_of
from tidemark.warehouse.private.tokens import canonical, text_prefix
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.text.records import hidden

_RAW = "_raw"  # see rejected.RECORD_COLUMNS


def with_tokens(rows: Input, options: Options) -> Input:
    """The rows with tokens in the private columns; as they are, if there is none, or they have them.

    InputError if this process does not have the warehouse's secret.
    """
    if rows.tokens_of or not options.private:
        check_current(rows, options)
        return rows
    return TokenRows(rows, frozenset(options.private), secret_of(options.fingerprint))


def text_columns(events: DeltaTable, options: Options) -> pa.Schema:
    """The schema by which text is read, for the opened table `events`; see `as_text`.

    InputError for a warehouse with private columns and no columns yet: errors while the columns are chosen
    would show the text.
    """
    if options.private and not options.columns:
        raise InputError(
            "the warehouse has private columns, and its columns are not known yet. Create it with a schema, "
            "or load Parquet, Arrow data or a DataFrame first; then it takes text."
        )
    return as_text(options.names.of_schema(pa.schema(events.schema())), options)


def as_text(schema: pa.Schema, options: Options) -> pa.Schema:
    """The columns by which text is read: private columns are text, which no error shows."""
    return pa.schema([hidden(one.name) if one.name in options.private else one for one in schema])


@dataclass(frozen=True, slots=True)
class TokenRows:
    """An input whose private columns have tokens; see `Input`."""

    rows: Input
    private: frozenset[str]
    secret: Secret

    @property
    def tokens_of(self) -> str:
        """See `Input.tokens_of`."""
        return self.secret.fingerprint

    def fields(self, *excluded: str) -> list[Field]:
        """See `Input.fields`; InputError as `as_token_field`."""
        return [
            as_token_field(field) if field.name in self.private else field
            for field in self.rows.fields(*excluded)
        ]

    def each(self, names: Sequence[str], task: RowsTask) -> list[Any]:
        """See `Input.each`."""
        places = tuple(place for place, name in enumerate(names) if name in self.private)
        raw = list(names).index(_RAW) if _RAW in names and self.secret.seals else None
        return self.rows.each(names, MakeTokens(places, self.secret, task, raw))


def check_current(rows: Input, options: Options) -> None:
    """Contended if the rows have tokens of another secret than the warehouse: it was rotated meanwhile."""
    if rows.tokens_of != options.fingerprint:
        raise Contended(
            "the secret of the private columns was rotated since the call began. Nothing was changed: run it "
            "again with the newer secret."
        )


@dataclass(frozen=True, slots=True)
class MakeTokens:
    """Runs a task on rows with tokens in the columns at `places`.

    raw   the place of the column with the text of each record, which is encrypted; None: it is left out later
    """

    places: tuple[int, ...]
    secret: Secret
    task: RowsTask
    raw: int | None = None

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
        """See `RowsTask.run`."""
        return self.task.run(map(self._of, batches))

    def _of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            token_column(self.secret, column) if place in self.places else column
            for place, column in enumerate(rows.columns)
        ]
        if self.raw is not None:
            prefix = text_prefix(self.secret.fingerprint)
            sealed = token_column(self.secret, columns[self.raw]).to_pylist()
            texts = [None if one is None else f"{prefix}{one.hex()}" for one in sealed]
            columns[self.raw] = pa.array(texts, pa.string())
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


@dataclass(frozen=True, slots=True)
class WrappedTokens:
    """Rows of `events` with newer tokens in newer columns.

    secrets   each wraps the tokens of the one before
    columns   the stored names of the newer columns, by those whose tokens they wrap
    """

    secrets: tuple[Secret, ...]
    columns: Mapping[str, str]

    def of(self, rows: pa.Table) -> pa.Table:
        """The rows with the newer columns in the places of the others."""
        for place, name in enumerate(rows.column_names):
            if name in self.columns:
                tokens = self._wrapped(single_array(rows.column(name)))
                rows = rows.set_column(place, self.columns[name], tokens)
        return rows

    def _wrapped(self, tokens: pa.Array) -> pa.Array:
        coded = tokens.dictionary_encode()
        found: list[bytes] = coded.dictionary.to_pylist()
        for secret in self.secrets:
            found = [secret.wrapped(one) for one in found]
        return binary_array(found).take(coded.indices).cast(pa.binary())


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
