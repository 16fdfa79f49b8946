"""What the readers of JSON and CSV records share: the columns, the outcome, and why a record is refused."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from tidemark.warehouse.columns.schema import column_types, delta_fields

_HIDDEN = {b"tidemark.hidden": b"1"}  # the metadata of a column whose values no error shows
_NOT_SHOWN = "it is no record of the warehouse's columns. It is not shown, because it has private columns"

_SHOWN_CHARACTERS = 200  # of a value, in a reason


@dataclass(frozen=True)
class TextColumns:
    """The columns of the records, of types that `events` stores."""

    schema: pa.Schema

    @cached_property
    def type_names(self) -> list[str]:
        """The types as Delta and SQL call them, in the order of the columns."""
        return list(column_types(delta_fields(self.schema)).values())

    @property
    def is_hidden(self) -> bool:
        """Whether a column is hidden: then no error shows a part of a record, or of a header."""
        return any(field.metadata == _HIDDEN for field in self.schema)

    def told(self, reason: str) -> str:
        """The reason for which a record is refused, as errors have it."""
        return _NOT_SHOWN if self.is_hidden else reason

    @property
    def said(self) -> str:
        """The columns with their types, for a reason."""
        pairs = zip(self.schema.names, self.type_names, strict=True)
        return ", ".join(f"{name} {type_name}" for name, type_name in pairs)


def hidden(name: str) -> pa.Field:
    """A column of text whose values no error shows."""
    return pa.field(name, pa.string(), metadata=_HIDDEN)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A row for each record, and the reason of each record that is refused, by its row."""

    rows: pa.RecordBatch
    refused: dict[int, str]


def shown(text: str) -> str:
    """A text for a reason: its first characters, in one line."""
    some = text[:_SHOWN_CHARACTERS]
    if some.isprintable():
        return some
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in some)


def as_texts(records: pa.Array, malformed: str) -> tuple[list[str | None], dict[int, str]]:
    """The records as text, None for those that are none; and the reasons of these, by row.

    `malformed` begins the reason of a record that is no UTF-8.
    """
    refused: dict[int, str] = {}
    try:
        texts = records.cast(pa.string()).to_pylist()
    except pa.ArrowInvalid:  # one of them is no UTF-8
        texts = records.to_pylist()
    for row, text in enumerate(texts):
        if not text:
            texts[row], refused[row] = None, "an empty record"
        elif isinstance(text, bytes):
            try:
                texts[row] = str(text, "utf-8")
            except UnicodeDecodeError as error:
                texts[row], refused[row] = None, f"{malformed}: no UTF-8 from byte {error.start} on"
    return texts, refused
