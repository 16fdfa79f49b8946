"""What the readers of JSON and CSV records share: the columns, the outcome, and why a record is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from tidemark.warehouse.columns.schema import column_types, delta_fields

T = TypeVar("T")

_HIDDEN = {b"tidemark.hidden": b"1"}  # the metadata of a column whose values no error shows
_NOT_SHOWN = "it is no record of the warehouse's columns. It is not shown, because it has private columns"

_SHOWN_CHARACTERS = 200  # of a value, in a reason


class Refused(Exception):
    """The record is refused; the text is the reason."""


class MalformedRecord(Refused):
    """The record is not JSON or CSV of the expected columns; the text is the detail of the reason."""


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


class RecordParser(Protocol):
    """Parses records of one form."""

    @property
    def columns(self) -> TextColumns:
        """The columns of the rows."""

    def parse(self, records: pa.Array) -> Parsed:
        """The records (binary, each with or without its line end) as rows."""


def each_text(
    records: pa.Array, parse: Callable[[str], T], malformed: str
) -> tuple[list[T | None], dict[int, str]]:
    """What `parse` makes of each record as text, None where it raises; and the reasons, by row.

    `malformed` is the reason of a MalformedRecord, which adds the detail.
    """
    parsed: list[T | None] = []
    refused: dict[int, str] = {}
    for row, text in enumerate(_texts(records)):
        try:
            parsed.append(parse(_checked(text)))
            continue
        except MalformedRecord as error:
            refused[row] = f"{malformed}: {error}"
        except Refused as error:
            refused[row] = str(error)
        except ValueError as error:  # an integer of thousands of digits
            refused[row] = (
                f"{malformed}: {str(error).partition(';')[0]}"  # the rest is about Python's settings
            )
        parsed.append(None)
    return parsed, refused


def _texts(records: pa.Array) -> list[Any]:
    """The records as text; as bytes if one of them is no UTF-8."""
    try:
        return list(records.cast(pa.string()).to_pylist())
    except pa.ArrowInvalid:
        return list(records.to_pylist())


def _checked(text: Any) -> str:
    if not text:
        raise Refused("an empty record")
    if isinstance(text, str):
        return text
    try:
        return str(text, "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedRecord(f"no UTF-8 from byte {error.start} on") from None
