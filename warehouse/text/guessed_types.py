"""Types of columns that come as text, for the batch that creates a warehouse or adds columns to it.

A column has the first of these types that all of its texts are, strictly and as they are usually written:
boolean, long, double, date, timestamp; otherwise it is text. Numbers with leading zeros or a plus are text,
as 00501 is a code. The columns of keys are text whatever they hold: 1e5 and 100000 are two texts and one
number. In JSON, objects and lists are kept as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import Field, Schema
from deltalake.schema import PrimitiveType

from tidemark.warehouse.columns.column_types import (
    COLUMN_TYPES,
    GUESSED_TYPES,
    find_column_type,
    sql_column_type,
)
from tidemark.warehouse.errors import InputError, shortened
from tidemark.warehouse.text.files import blocks, read_chunks
from tidemark.warehouse.text.json_records import decoded_objects
from tidemark.warehouse.text.json_values import parse_values
from tidemark.warehouse.text.records import TextColumns
from tidemark.warehouse.text.rows import SEPARATORS, csv_schema, part_rows
from tidemark.warehouse.text.values import parse_texts


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the caller says of the types: those of some columns, and the columns of keys, which are text."""

    given: Mapping[str, str] = field(default_factory=dict)
    keys: frozenset[str] = frozenset()


ANY_TYPES = Wanted()
_NO_COLUMNS = pa.schema([])


def arrow_schema(types: Mapping[str, str]) -> pa.Schema:
    """The Arrow types of columns whose plain types are named as in SQL or in Delta; InputError for others."""
    fields = []
    for name, text in types.items():
        found = sql_column_type(text.lower()) or find_column_type(text.lower())
        if found is None:
            raise InputError(
                f"the type of {name} is {shortened(text)}, expected one of: "
                f"{', '.join(kind.sql for kind in COLUMN_TYPES.values())}, decimal(10,2)."
            )
        fields.append(Field(name, PrimitiveType(found.name)))
    return pa.schema(Schema(fields))


@dataclass(slots=True)
class Guesses:
    """The types that each column may still have, by name in the order of the columns; `seen` had a value."""

    types: dict[str, set[str]] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    def add(self, name: str, values: pa.Array | list[Any]) -> None:
        """Leaves out the types that not all of these texts (or JSON values) are."""
        left = self.types.setdefault(name, set(GUESSED_TYPES))
        nulls = values.count(None) if isinstance(values, list) else values.null_count
        if nulls < len(values):
            self.seen.add(name)
            left -= {kind for kind in left if not _are_all(values, kind)}

    def merge(self, others: Guesses) -> None:
        """Takes what other parts of the input may be."""
        for name, types in others.types.items():
            self.types.setdefault(name, set(GUESSED_TYPES)).intersection_update(types)
        self.seen |= others.seen

    def choose(self, wanted: Wanted, stored: pa.Schema = _NO_COLUMNS) -> pa.Schema:
        """A type for each column, the stored one if there is one.

        InputError for a given type of a column that is not there.
        """
        missing = sorted(set(wanted.given) - set(self.types))
        if missing:
            raise InputError(f"the input has no column {shortened(missing[0])}, of which a type was given.")
        chosen = {}
        for name, left in self.types.items():
            is_text = name in wanted.keys or name not in self.seen
            likely = next((kind for kind in GUESSED_TYPES if kind in left and not is_text), "string")
            chosen[name] = wanted.given.get(name, likely)
        types = {one.name: one for one in (*arrow_schema(chosen), *stored)}
        return pa.schema([types[name] for name in chosen])


def guess_types(paths: list[Path], form: str, wanted: Wanted, stored: pa.Schema = _NO_COLUMNS) -> pa.Schema:
    """The types of the columns of text files; each is read to its end. InputError for a refused record.

    stored: the types of the columns that the warehouse has.
    """
    check_guessed(stored)
    guesses = Guesses()
    columns = text_columns(str(paths[0]), read_chunks(paths[0]), form)
    for path in paths:
        guesses.merge(guess_part(str(path), read_chunks(path), form, columns))
    return guesses.choose(wanted, stored)


def check_guessed(stored: pa.Schema | None) -> None:
    """InputError where types would be chosen of text in which values of hidden columns are."""
    if stored is not None and TextColumns(stored).is_hidden:
        raise InputError(
            "text adds no columns to a warehouse with private columns. Give Parquet, Arrow data or a "
            "DataFrame."
        )


def text_columns(path: str, chunks: Iterable[bytes], form: str) -> TextColumns | None:
    """The columns of a CSV file, all as text; None for JSON."""
    return TextColumns(csv_schema(path, chunks, form, pa.schema([]))) if form in SEPARATORS else None


def guess_part(
    path: str, chunks: Iterable[bytes], form: str, columns: TextColumns | None, first: int = 1
) -> Guesses:
    """What the columns of one file, or of a part of it, may be: see `part_rows`."""
    guesses = Guesses()
    if columns is not None:
        for rows in part_rows(path, chunks, form, columns, first):
            for name, texts in zip(rows.schema.names, rows.columns, strict=True):
                guesses.add(name, texts)
        return guesses
    for block in blocks(path, chunks, form, first):
        objects = [found for found in decoded_objects(block.records) if found]
        for name in dict.fromkeys(chain.from_iterable(objects)):
            guesses.add(name, [found.get(name) for found in objects])
    return guesses


def _are_all(values: pa.Array | list[Any], kind: str) -> bool:
    """Whether all texts or JSON values are of the type, and written as usual."""
    if isinstance(values, list):
        return not parse_values(values, _ARROW.field(kind).type)[1]
    usual = GUESSED_TYPES[kind]
    if usual is not None and pc.all(pc.match_substring_regex(values, usual)).as_py() is False:
        return False
    return not parse_texts(values, _ARROW.field(kind).type)[1]


_ARROW = arrow_schema({kind: kind for kind in GUESSED_TYPES})
