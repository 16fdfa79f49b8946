"""Keys: the column that frequencies are asked of, how it is stored, and the order of what is stored.

A key is stored as BIGINT (booleans, integers, dates, timestamps, decimals of up to 18 digits, as
measures are), as DOUBLE (float, double), or as it is (string, binary). Whatever Spark groups as
one key is stored as one: -0.0 as 0.0, every NaN as the same NaN. NULL is no key: it is counted
by tick, never stored.

In memory a key is a *name*: an int64, or bytes. Names order as the stored keys do in every
engine: numbers by value with NaN last, text by its bytes. The name of a double is the integer
that its bits stand for in that order, so all that sorts and searches knows two kinds of names.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias, cast, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidemark.warehouse.columns.arrow_types import TextNames
from tidemark.warehouse.columns.column_types import (
    ColumnType,
    column_type,
    find_column_type,
    key_type_names,
)
from tidemark.warehouse.columns.measures import Measure, as_numpy, as_numpy_bools, encode_column
from tidemark.warehouse.columns.tick_counts import unique_codes
from tidemark.warehouse.errors import InputError

Name: TypeAlias = int | bytes
Names: TypeAlias = NDArray[np.int64] | TextNames  # (k,)
SortValue: TypeAlias = (
    Name | float
)  # a value of a column by which rows are sorted: a measure, a name or a tick
SortColumn: TypeAlias = Names | NDArray[np.float64]  # (k,)

FEW = 16  # names that are looked up one by one
_LOW_BITS = np.int64(2**63 - 1)


@dataclass(frozen=True, slots=True)
class Key:
    """The key column: its name and its type by Delta's name (`string`, `decimal(10,2)` ...)."""

    name: str
    type: str

    def __post_init__(self) -> None:
        kind = find_column_type(self.type)
        if kind is None or not kind.is_key:
            raise InputError(
                f"the key {self.name!r} is of type {self.type}, which cannot be kept exactly. "
                f"Expected one of: {key_type_names()}. Cast it, to string for example."
            )

    @property
    def column_type(self) -> ColumnType:
        """Its entry in the table of column types."""
        return column_type(self.type)

    @property
    def is_text(self) -> bool:
        """Whether names are bytes."""
        return self.column_type.is_text

    @property
    def is_double(self) -> bool:
        """Whether runs store it as DOUBLE."""
        return self.column_type.is_double

    @property
    def stored_type(self) -> pa.DataType:
        """The Arrow type that the tables have."""
        return self.column_type.storage.value

    @property
    def marked_type(self) -> pa.DataType:
        """The Arrow type that the marks have: what separates two texts may end inside a character."""
        return pa.binary() if self.is_text else self.stored_type

    def name_of(self, value: Any) -> Name | None:
        """The name of a key as the user has it; None where no row of this type can have it.

        InputError for a value of another type: text for a number, a number for text.
        """
        kind = self.column_type
        if not kind.is_measure and kind.from_value is not None:
            name = kind.from_value(value)
            if name is None:
                raise InputError(f"{value!r} is no key here: {self.name!r} is of type {self.type}.")
            return name
        if isinstance(value, (float, Decimal, np.floating)) and value != value:  # noqa: PLR0124  NaN
            return int(_ordinals(np.array([np.nan]))[0]) if self.is_double else None
        below = self._number.floor(value)
        if below is None or not self._is_same(kind.decode(below), value):
            return None
        return int(_ordinals(np.array([below + 0.0]))[0]) if self.is_double else int(below)

    def bound_of(self, value: Any) -> Name:
        """The least name that is not less than the value: where a range that begins with it begins.

        It may lie beyond all names. InputError as `name_of`.
        """
        exact = self.name_of(value)
        if exact is not None:
            return exact
        if value != value:  # noqa: PLR0124  NaN, after all numbers
            return 2**63
        below = self._number.floor(value)
        if below is None:
            return -(2**63)
        return (int(_ordinals(np.array([below + 0.0]))[0]) if self.is_double else int(below)) + 1

    def value_of(self, name: Name) -> Any:
        """The key of a name, in the column's own type."""
        stored = _doubles(np.array([name]))[0] if self.is_double else name
        return self.column_type.decode(stored)

    @property
    def _number(self) -> Measure:
        """The key as a measure; InputError for booleans and text."""
        return Measure(self.name, self.type)

    def _is_same(self, kept: Any, value: Any) -> bool:
        """Whether the greatest storable number at or below the value is the value."""
        if not self.column_type.is_number:
            return True  # a time or its text stands for the stored unit that holds it, a day for example
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, (float, Decimal)) and value in (float("inf"), float("-inf")):
            return bool(kept == value)
        return bool(Fraction(kept) == Fraction(value)) if kept not in (float("inf"), float("-inf")) else False


@dataclass(frozen=True, slots=True, eq=False)
class KeyColumn:
    """Decoded rows: row i has the key names[codes[i]], undefined where null[i]; `names` in any order."""

    names: Names
    codes: NDArray[np.int64] | None  # None: row i has the key names[i]
    null: NDArray[np.bool_]


def encode_keys(key: Key, array: pa.Array) -> KeyColumn:
    """An Arrow array of the key's own type, or of a dictionary of it, as names."""
    if key.is_text:
        coded_array = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
        codes = pc.fill_null(coded_array.indices.cast(pa.int64()), 0)
        return KeyColumn(as_names(coded_array.dictionary), as_numpy(codes), _nulls(coded_array))
    column = encode_column(key.column_type, array)
    return KeyColumn(_ordinals(column.stored) if key.is_double else column.stored, None, column.null)


def _nulls(array: pa.Array) -> NDArray[np.bool_]:
    return as_numpy_bools(array.is_null())


def as_names(texts: pa.Array) -> TextNames:
    """Texts of any Arrow type as names; what is no UTF-8 stays as it is."""
    bytes_type = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}.get(texts.type)
    names: TextNames = (texts if bytes_type is None else texts.view(bytes_type)).cast(pa.large_binary())
    return names


def names_of(key: Key, stored: pa.Array | NDArray[Any]) -> Names:
    """Stored keys as names, one per row. Numbers may be a numpy array already."""
    return as_names(stored) if key.is_text else number_names(key, stored)


def number_names(key: Key, stored: pa.Array | NDArray[Any]) -> NDArray[np.int64]:
    """Stored keys that are numbers as names, one per row."""
    values = stored if isinstance(stored, np.ndarray) else as_numpy(stored)
    return _ordinals(values) if key.is_double else values


def stored_keys(key: Key, names: Names, *, marked: bool = False) -> pa.Array:
    """Names as the tables store them; with `marked` as the marks store them."""
    if isinstance(names, np.ndarray):
        return pa.array(_doubles(names) if key.is_double else names)
    return names.cast(pa.binary()).view(key.marked_type if marked else key.stored_type)


def no_names(key: Key) -> Names:
    """No names of the key's kind."""
    return names_from_bytes([]) if key.is_text else np.empty(0, dtype=np.int64)


def names_from(key: Key, names: Sequence[Name]) -> Names:
    """Single names together."""
    return (
        names_from_bytes(cast("Sequence[bytes]", names)) if key.is_text else np.array(names, dtype=np.int64)
    )


def names_from_bytes(texts: Sequence[bytes]) -> TextNames:
    """Names that are bytes. Not by pa.array: it imports pandas, which no reader needs."""
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))]
    names: TextNames = pa.Array.from_buffers(pa.large_binary(), len(texts), buffers)
    return names


def take_names(names: Names, indices: NDArray[Any]) -> Names:
    """The names at the indices."""
    if isinstance(names, np.ndarray):
        numbers: NDArray[np.int64] = names[indices]
        return numbers
    return names.take(arrow_array(np.asarray(indices, dtype=np.int64)))


def arrow_array(numbers: NDArray[Any]) -> pa.Array:
    """The numbers as they lie in memory. Not by pa.array: it imports pandas, which no reader needs."""
    plain = np.ascontiguousarray(numbers)
    return pa.Array.from_buffers(pa.from_numpy_dtype(plain.dtype), len(plain), [None, pa.py_buffer(plain)])


def join_names(parts: Sequence[Names]) -> Names:
    """All names, one part after the other."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(cast("Sequence[NDArray[np.int64]]", parts))
    joined: TextNames = pa.concat_arrays(list(parts))
    return joined


def unify_names(parts: Sequence[Names]) -> tuple[Names, list[NDArray[np.int64]]]:
    """Ascending names that hold all of the parts', and where each part's names stand among them.

    Numbers that lie close together bring every number between with them, which needs no sort.
    """
    joined = join_names(parts)
    names: Names
    if isinstance(joined, np.ndarray):
        names, codes = unique_codes(joined)
    else:
        encoded = joined.dictionary_encode()
        order = as_numpy(pc.sort_indices(encoded.dictionary)).astype(np.int64)
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        names, codes = take_names(encoded.dictionary, order), rank[as_numpy(encoded.indices)]
    edges = np.cumsum([len(part) for part in parts])[:-1]
    return names, np.split(codes, edges)


def name_sizes(names: Names) -> NDArray[np.int64]:
    """The bytes of each name."""
    if isinstance(names, np.ndarray):
        return np.full(len(names), 8, dtype=np.int64)
    return as_numpy(pc.binary_length(names)).astype(np.int64)


@overload
def name_at(names: Names, i: int) -> Name: ...


@overload
def name_at(names: SortColumn, i: int) -> SortValue: ...


def name_at(names: SortColumn, i: int) -> SortValue:
    """The name at index i as a Python value; also of measures and ticks."""
    name: SortValue = names[i].item() if isinstance(names, np.ndarray) else names[i].as_py()
    return name


def name_less(a: Name, b: Name) -> bool:
    """Whether name `a` is less than name `b` of the same key."""
    if isinstance(a, bytes):
        return isinstance(b, bytes) and a < b
    return isinstance(b, int) and a < b


def same_names(a: Names, b: Names) -> bool:
    """Whether both are the same names in the same order."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.array_equal(a, b)
    return a.equals(b)


def count_less(names: Names, name: Name, *, equal: bool = False) -> int:
    """How many of ascending names are less than the name, or also `equal` to it."""
    find = bisect_right if equal else bisect_left
    return find(range(len(names)), name, key=lambda i: name_at(names, i))


def find_names(names: Names, asked: Names) -> NDArray[np.int64]:
    """Where each of the names asked for stands among ascending names; -1 where it is not there."""
    if len(asked) < FEW:
        found = [count_less(names, name_at(asked, i)) for i in range(len(asked))]
        same = [at < len(names) and name_at(names, at) == name_at(asked, i) for i, at in enumerate(found)]
        return np.where(same, found, -1).astype(np.int64)
    joined, (mine, theirs) = unify_names([names, asked])
    place = np.full(len(joined), -1, dtype=np.int64)
    place[mine] = np.arange(len(names))
    return place[theirs]


def count_tuples_less(columns: Sequence[SortColumn], place: tuple[SortValue, ...], *, equal: bool) -> int:
    """How many of ascending places, each column a part of them, are less than the place, or also `equal`."""
    find = bisect_right if equal else bisect_left
    return find(range(len(columns[0])), place, key=lambda i: tuple(name_at(column, i) for column in columns))


def separator(before: Name, after: Name) -> Name:
    """The shortest name that is greater than `before` and not greater than `after`, which is greater."""
    if not isinstance(before, bytes) or not isinstance(after, bytes):
        return after
    ends = min(len(before), len(after))
    a = np.frombuffer(before, dtype=np.uint8, count=ends)
    differ = np.flatnonzero(a != np.frombuffer(after, dtype=np.uint8, count=ends))
    return after[: (int(differ[0]) if len(differ) else ends) + 1]


def _ordinals(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Integers that order as the doubles do; every NaN is one, after all numbers."""
    bits = np.where(np.isnan(values), np.nan, values + 0.0).view(np.int64)
    return np.where(bits < 0, bits ^ _LOW_BITS, bits)


def _doubles(ordinals: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.where(ordinals < 0, ordinals ^ _LOW_BITS, ordinals).view(np.float64)
