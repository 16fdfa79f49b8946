"""Keys: how the column whose frequencies are counted is stored, and how its values are ordered.

A key is stored as BIGINT (booleans, and the measures that are BIGINT), as DOUBLE (float, double), or
unchanged (string, binary). Values that Spark groups as one key are stored as one value: -0.0 as 0.0, every
NaN as the same NaN. Rows whose key is NULL are counted by tick; NULL itself is not stored.

In memory a key is a *name*: an int that fits into 64 bits, or bytes. Names are ordered as every engine orders
the stored keys: numbers by value with NaN last, text by its bytes. The name of a double is an integer made of
its bits that has the same order. So sorting and searching handle only these two kinds of names.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidemark.warehouse.columns.arrow_buffers import arrow_array, binary_array, zero_for_null
from tidemark.warehouse.columns.arrow_types import TextNames
from tidemark.warehouse.columns.codes import unique_codes
from tidemark.warehouse.columns.column_types import (
    ColumnType,
    column_type,
    find_column_type,
    key_type_names,
    type_text,
)
from tidemark.warehouse.columns.given_values import (
    LEAST,
    Standing,
    exact_value,
    standing,
    usual_standing,
)
from tidemark.warehouse.columns.value_encoding import (
    as_numpy,
    as_numpy_bools,
    encode_column,
    single_array,
)
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.private.tokens import utf8_of

Name: TypeAlias = int | bytes
Names: TypeAlias = NDArray[np.int64] | TextNames  # (k,)
SortValue: TypeAlias = Name | float  # of a column by which rows are sorted: a measure, a name or a tick
SortColumn: TypeAlias = Names | NDArray[np.float64]  # (k,)
S = TypeVar("S", bound=SortColumn)

_FEW = 16  # fewer names than this are looked up one by one
_LOW_BITS = np.int64(2**63 - 1)  # all but the sign


@dataclass(frozen=True, slots=True)
class Key:
    """The key column: its name, and its type by Delta's name (`string`, `decimal(10,2)` ...).

    `stored` is its stored name if that is another one (column_names.py); it names tables.

    InputError for a type that cannot be stored exactly.
    """

    name: str
    type: str
    stored: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        kind = find_column_type(self.type)
        if kind is None or not kind.is_key:
            remedy = "to string" if kind is None or kind.scale else "to int64 or string"
            raise InputError(
                f"the key {self.name!r} is of type {type_text(self.type)}, which cannot be kept exactly. "
                f"Expected one of: {key_type_names()}. Cast it, {remedy} for example."
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of `events` that the key is made of."""
        return (self.name,)

    @property
    def stored_names(self) -> tuple[str, ...]:
        """The stored names of these columns."""
        return tuple(part.stored or part.name for part in self.parts)

    @property
    def texts(self) -> tuple[str, ...]:
        """Those of the columns that are text or binary."""
        return self.columns if self.is_text else ()

    @property
    def parts(self) -> tuple[Key, ...]:
        """The key of each column."""
        return (self,)

    def encode(self, events: pa.Table) -> KeyColumn:
        """The keys of rows of `events`."""
        return encode_keys(self, single_array(events.column(self.name)))

    def names_in(self, name: Name) -> tuple[Name, ...]:
        """The names of the columns in a name of the key."""
        return (name,)

    @property
    def column_type(self) -> ColumnType:
        """Its entry in the table of column types."""
        return column_type(self.type)

    @property
    def is_text(self) -> bool:
        """Whether names are bytes (else they are integers)."""
        return self.column_type.is_text

    @property
    def is_double(self) -> bool:
        """Whether runs store it as DOUBLE."""
        return self.column_type.is_double

    @property
    def stored_type(self) -> pa.DataType:
        """The Arrow type of the column in the tables."""
        return self.column_type.storage.value

    @property
    def marked_type(self) -> pa.DataType:
        """The Arrow type of the column in the marks, where text may be cut inside a character."""
        return pa.binary() if self.is_text else self.stored_type

    def name_of(self, value: Any) -> Name | None:
        """The name of a value; None for a value that no row can have, such as 2.5 for integers.

        InputError for a value of another type: text for a number, a number for text.
        """
        if self.type == "string" and (text := utf8_of(value)) is not None:
            return text  # each text is a name, and most values that are looked up are text
        found = self.standing(value)
        return self._name_at(found) if found.equal else None

    def bound_of(self, value: Any) -> Name:
        """The least name that is not less than the value: the inclusive start of a range of keys.

        It may lie outside 64 bits, before or after all names. InputError as in `name_of`.
        """
        if self.column_type.is_token:
            raise InputError(
                f"{self.name} is a private column: its tokens have no order, so there are no ranges of them. "
                "Ask for single values."
            )
        found = self.standing(value)
        if found.at is None:
            return LEAST
        name = self._name_at(found)
        return name if found.equal or isinstance(name, bytes) else name + 1

    def value_of(self, name: Name) -> Any:
        """The value of a name, in the column's own type."""
        stored = _doubles(np.array([name]))[0] if self.is_double else name
        return self.column_type.decode(stored)

    def values_of(self, names: Names) -> list[Any]:
        """The values of some names."""
        decode = self.column_type.decode
        if isinstance(names, np.ndarray):
            return list(map(decode, _doubles(names) if self.is_double else names.tolist()))
        return list(map(decode, names.to_pylist()))

    def standing(self, value: Any) -> Standing:
        """How a value stands between the stored keys: given_values.py, which says the errors."""
        kind = self.column_type
        return usual_standing(kind, value) or standing(kind, exact_value(kind, self.name, value))

    def _name_at(self, found: Standing) -> Name:
        """The name of the stored value at which a given one stands."""
        if isinstance(found.at, float):
            return int(_ordinals(np.array([found.at]))[0])
        name: Name = found.at
        return name


@dataclass(frozen=True, slots=True, eq=False)
class KeyColumn:
    """The keys of rows: row i has the key ``names[codes[i]]``, undefined where `null` is set.

    `names` (k,) are in any order and may repeat; `codes` and `null` are (rows,). If `codes` is None, row i
    has the key ``names[i]``.
    """

    names: Names
    codes: NDArray[np.int64] | None
    null: NDArray[np.bool_]


def encode_keys(key: Key, array: pa.Array) -> KeyColumn:
    """An Arrow array of the key's own type, of a dictionary of it, or of Arrow's type null, as names."""
    if key.is_text and pa.types.is_null(array.type):
        array = pa.nulls(len(array), key.stored_type)
    if key.is_text:
        coded_array = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
        codes = zero_for_null(coded_array.indices.cast(pa.int64()))
        return KeyColumn(
            as_names(coded_array.dictionary), as_numpy(codes), as_numpy_bools(coded_array.is_null())
        )
    column = encode_column(key.column_type, array)
    return KeyColumn(_ordinals(column.stored) if key.is_double else column.stored, None, column.null)


def as_names(texts: pa.Array) -> TextNames:
    """Text of any Arrow type as names; bytes that are not UTF-8 stay as they are."""
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
        return arrow_array(_doubles(names) if key.is_double else names)
    return names.cast(pa.binary()).view(key.marked_type if marked else key.stored_type)


def no_names(key: Key) -> Names:
    """Names of the key's kind, of length 0."""
    return binary_array([]) if key.is_text else np.empty(0, dtype=np.int64)


def names_from(key: Key, names: Sequence[Name]) -> Names:
    """The single names as an array."""
    if key.is_text:
        return binary_array(cast("Sequence[bytes]", names))
    return np.array(names, dtype=np.int64)


def take_names(names: Names, indices: NDArray[Any]) -> Names:
    """The names at the indices."""
    if isinstance(names, np.ndarray):
        numbers: NDArray[np.int64] = names[indices]
        return numbers
    return names.take(arrow_array(np.asarray(indices, dtype=np.int64)))


def join_names(parts: Sequence[S]) -> S:
    """The names or sort columns of all parts, at least one, one part after the other."""
    join: Any = np.concatenate if isinstance(parts[0], np.ndarray) else pa.concat_arrays
    joined: S = join(list(parts))
    return joined


def ascends(columns: Sequence[SortColumn]) -> bool:
    """Whether the rows of these sort columns ascend, compared from the first column to the last."""
    equal: NDArray[np.bool_] | np.bool_ = np.True_
    for column in columns:
        codes = column if isinstance(column, np.ndarray) else unify_names([column])[1][0]
        if np.any(equal & ~(codes[:-1] <= codes[1:])):  # also where one of them is NaN
            return False
        equal = equal & (codes[:-1] == codes[1:])
    return True


def unify_names(parts: Sequence[Names]) -> tuple[Names, list[NDArray[np.int64]]]:
    """Ascending names that include those of all parts, and for each part the indices of its names among them.

    The parts (b, a) and (b, c) give (a, b, c) and the indices (1, 0), (1, 2). If numbers lie close together,
    every number of their range is included, which takes O(n) and no sort. Otherwise O(n log n).
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
    """The number of bytes of each name."""
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


def same_names(a: SortColumn, b: SortColumn) -> bool:
    """Whether both are the same names in the same order."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.array_equal(a, b)
    return a.equals(b)


def count_less(names: Names, name: Name, *, equal: bool = False) -> int:
    """The number of ascending names that are less than the name; with `equal` less or equal. O(log n)."""
    find = bisect_right if equal else bisect_left
    return find(range(len(names)), name, key=partial(name_at, names))


def find_names(names: Names, wanted: Names) -> NDArray[np.int64]:
    """The index of each wanted name among ascending names; -1 for a name that is not there."""
    if len(wanted) < _FEW:
        found = [count_less(names, name_at(wanted, i)) for i in range(len(wanted))]
        same = [at < len(names) and name_at(names, at) == name_at(wanted, i) for i, at in enumerate(found)]
        return np.where(same, found, -1).astype(np.int64)
    joined, (codes, wanted_codes) = unify_names([names, wanted])
    index = np.full(len(joined), -1, dtype=np.int64)
    index[codes] = np.arange(len(names))
    return index[wanted_codes]


def count_tuples_less(columns: Sequence[SortColumn], bound: tuple[SortValue, ...], *, equal: bool) -> int:
    """The number of ascending tuples that are less than `bound`; with `equal` less or equal. O(log n).

    Tuple i has the i-th value of each column, at least one.
    """
    find = bisect_right if equal else bisect_left
    return find(range(len(columns[0])), bound, key=partial(_tuple_at, columns))


def _tuple_at(columns: Sequence[SortColumn], i: int) -> tuple[SortValue, ...]:
    return tuple(name_at(column, i) for column in columns)


def separator(before: Name, after: Name) -> Name:
    """The shortest name with before < name <= after, which must be greater than `before`.

    A number is `after` itself; the text between b"apple" and b"apricot" is b"apr".
    """
    if not isinstance(before, bytes) or not isinstance(after, bytes):
        return after
    shorter = min(len(before), len(after))
    left, right = (np.frombuffer(text, dtype=np.uint8, count=shorter) for text in (before, after))
    differ = np.flatnonzero(left != right)
    return after[: (int(differ[0]) if len(differ) else shorter) + 1]


def _ordinals(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Integers in the order of the doubles; every NaN becomes the same one, after all numbers."""
    bits = np.where(np.isnan(values), np.nan, values + 0.0).view(np.int64)
    return np.where(bits < 0, bits ^ _LOW_BITS, bits)


def _doubles(ordinals: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.where(ordinals < 0, ordinals ^ _LOW_BITS, ordinals).view(np.float64)
