"""Keys of several columns: the names of the columns of a row, encoded as one name.

Model. A composite key's name is bytes that order as the tuples of its columns' names do, compared from the
first column to the last. So runs, marks, lists of heavy keys and sketches handle it as they handle text. Each
column is encoded by itself, and the encodings are joined:

    number   8 bytes, the most significant first, with the sign bit flipped (doubles: their ordinal, keys.py)
    text     its bytes, each 0x00 written as 0x00 0xFF, then the terminator 0x00 0x00

No encoding is a prefix of another one of the same column. Hence the first columns alone, or the first columns
and a bound of the next one, are a bound in the order of the names: ranges may be given by a prefix.

Example: of the columns (string, long), the key ("ab", 1) is ``61 62 00 00 80 00 00 00 00 00 00 01``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidemark.warehouse.columns.arrow_buffers import binary_array
from tidemark.warehouse.columns.codes import combine_codes
from tidemark.warehouse.columns.column_types import COLUMN_TYPES, ColumnType
from tidemark.warehouse.columns.keys import (
    Key,
    KeyColumn,
    Name,
    Names,
    as_names,
    encode_keys,
    take_names,
    unify_names,
)
from tidemark.warehouse.columns.text_values import after_prefix
from tidemark.warehouse.columns.value_encoding import single_array
from tidemark.warehouse.errors import InputError, shortened

_SIGN = 1 << 63
_END, _ESCAPED_NUL = b"\x00\x00", b"\x00\xff"


@dataclass(frozen=True, slots=True)
class CompositeKey(Key):
    """A key of several columns. `parts` are its columns; `name` and `type` are theirs, joined."""

    parts: tuple[Key, ...] = ()

    @classmethod
    def of(cls, parts: Sequence[Key]) -> CompositeKey:
        """The key of these columns, at least two."""
        types = ", ".join(f"{part.name}: {part.type}" for part in parts)
        return cls(", ".join(part.name for part in parts), f"struct<{types}>", parts=tuple(parts))

    def __post_init__(self) -> None:
        """Does nothing: each part has checked its type."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(part.name for part in self.parts)

    @property
    def texts(self) -> tuple[str, ...]:
        """The names of the columns that are text or binary."""
        return tuple(part.name for part in self.parts if part.is_text)

    @property
    def column_type(self) -> ColumnType:
        """Bytes: names are stored as they are."""
        return COLUMN_TYPES["binary"]

    def encode(self, events: pa.Table) -> KeyColumn:
        """The keys of rows of `events`; a row with NULL in one of the columns has none."""
        columns = [encode_keys(part, single_array(events.column(part.name))) for part in self.parts]
        null = reduce(np.logical_or, [column.null for column in columns])
        kept = np.flatnonzero(~null)
        names: list[Names] = []
        place: list[NDArray[np.int64]] = []
        for column in columns:
            own_codes = kept if column.codes is None else column.codes[kept]
            used, to_used = np.unique(own_codes, return_inverse=True)
            distinct, (to_code,) = unify_names([take_names(column.names, used)])
            names.append(distinct)
            place.append(to_code[to_used])
        codes = combine_codes(place, [len(distinct) for distinct in names])
        _, first, of_row = np.unique(codes, return_index=True, return_inverse=True)
        encoded = _encode_tuples(
            [take_names(distinct, column[first]) for distinct, column in zip(names, place, strict=True)]
        )
        row_codes = np.zeros(len(null), np.int64)
        row_codes[kept] = of_row
        return KeyColumn(encoded, row_codes, null)

    def name_of(self, value: Any) -> Name | None:
        """The name of a tuple with one value per column; None if no row can have one of the values.

        InputError for another number of values, or a value of another type.
        """
        names = [part.name_of(item) for part, item in self._items(value, whole=True)]
        found = [name for name in names if name is not None]
        return b"".join(map(_encoded, found)) if len(found) == len(names) else None

    def bound_of(self, value: Any) -> Name:
        """The least name that is not less than the tuple, which may have values of the first columns only."""
        encoded = b""
        for part, item in self._items(value, whole=False):
            name = part.name_of(item)
            if name is None:  # between two names: the columns after it make no difference
                return _encoded_bound(encoded, part.bound_of(item))
            encoded += _encoded(name)
        return encoded

    def value_of(self, name: Name) -> Any:
        """The tuple of the values of a name, in the columns' own types."""
        return tuple(part.value_of(own) for part, own in zip(self.parts, self.names_in(name), strict=True))

    def names_in(self, name: Name) -> tuple[Name, ...]:
        """The names of the columns in a name of the key."""
        if not isinstance(name, bytes):
            raise TypeError(f"the name of a composite key is bytes, got {name!r}")
        names: list[Name] = []
        start = 0
        for part in self.parts:
            if not part.is_text:
                names.append(int.from_bytes(name[start : start + 8], "big") - _SIGN)
                start += 8
                continue
            end = name.index(b"\x00", start)
            while name[end : end + 2] == _ESCAPED_NUL:
                end = name.index(b"\x00", end + 2)
            names.append(name[start:end].replace(_ESCAPED_NUL, b"\x00"))
            start = end + 2
        return tuple(names)

    def _items(self, value: Any, *, whole: bool) -> list[tuple[Key, Any]]:
        if isinstance(value, (tuple, list)) and (
            len(value) == len(self.parts) or (not whole and 0 < len(value) < len(self.parts))
        ):
            return list(zip(self.parts, value, strict=False))
        is_private = any(part.column_type.is_token for part in self.parts)
        got = f"a {type(value).__name__}" if is_private else repr(value)
        raise InputError(
            f"a key of {self.name} is a tuple of {len(self.parts)} values in this order, got {got}."
        )


@dataclass(frozen=True, slots=True)
class ReorderedKey(CompositeKey):
    """A key of several columns whose values are tuples in another order than the declared one.

    declared: the key as it is stored: names are its names.
    """

    declared: CompositeKey | None = None

    @classmethod
    def as_named(cls, key: Key, columns: Sequence[str]) -> Key:
        """The key with its columns in this order; the key itself if that is the declared one."""
        if not isinstance(key, CompositeKey) or tuple(columns) == key.columns:
            return key
        named = CompositeKey.of([key.parts[key.columns.index(column)] for column in columns])
        return cls(named.name, named.type, parts=named.parts, declared=key)

    @property
    def _stored(self) -> CompositeKey:
        return self if self.declared is None else self.declared

    def name_of(self, value: Any) -> Name | None:
        """As the declared key's `name_of`, for a tuple in this order."""
        items = {part.name: item for part, item in self._items(value, whole=True)}
        return self._stored.name_of(tuple(items[column] for column in self._stored.columns))

    def bound_of(self, value: Any) -> Name:
        """InputError: keys are ordered by their columns as they were declared."""
        raise InputError(
            f"a range of keys goes by the declared order of the columns, {', '.join(self._stored.columns)}: "
            f"got {shortened(value)} by {self.name}. Name the columns in that order."
        )

    def value_of(self, name: Name) -> Any:
        """The tuple of the values of a name, in this order."""
        items = dict(zip(self._stored.columns, self._stored.value_of(name), strict=True))
        return tuple(items[column] for column in self.columns)


def _encoded(name: Name) -> bytes:
    if isinstance(name, bytes):
        return name.replace(b"\x00", _ESCAPED_NUL) + _END
    return (name + _SIGN).to_bytes(8, "big")


def _encoded_bound(before: bytes, bound: Name) -> bytes:
    """The encoding of a bound, which may lie outside 64 bits, after the encoded columns `before` it."""
    if isinstance(bound, bytes) or -_SIGN <= bound < _SIGN:
        return before + _encoded(bound)
    if bound < 0:
        return before
    # After all names that begin with `before`. Where that is no more than 0xFF, so may be any name, but none
    # begins with so many: that would be a binary value of them after columns that are all 2**63 - 1.
    return after_prefix(before) or b"\xff" * 2**16


def _encode_tuples(columns: Sequence[Names]) -> Names:
    """The encoded name of each tuple; tuple i has the i-th name of each column."""
    parts = []
    for names in columns:
        if isinstance(names, np.ndarray):
            flipped = names.view(np.uint64) ^ np.uint64(_SIGN)
            fixed = pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(8), len(names), [None, pa.py_buffer(flipped.astype(">u8"))]
            )
            parts.append(fixed.cast(pa.large_binary()))
        elif pc.any(pc.match_substring(names, "\x00")).as_py():
            parts.append(binary_array([_encoded(name) for name in names.to_pylist()]))
        else:
            parts.append(pc.binary_join_element_wise(names, binary_array([_END])[0], _NOTHING))
    return as_names(pc.binary_join_element_wise(*parts, _NOTHING))


_NOTHING = binary_array([b""])[0]
