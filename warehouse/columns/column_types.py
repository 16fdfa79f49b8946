"""What tidemark knows about each type that a column of `events` may have: names, storage and roles.

Each type has one `ColumnType`: the names of the type in other systems, how its values are stored and read
back, and the roles that a column of the type may have:

    role        types
    measure     those with `is_measure`: numbers that have an exact order as DOUBLE or BIGINT
    key         measures, booleans and text
    event time  those with `unit_us`: a stored number is a number of such units since 1970

A type is stored as DOUBLE, as BIGINT, or as text. Other modules look a type up here, by Delta's name
(`column_type`), by the SQL name (`sql_column_type`) or by the Arrow type (`arrow_column_type`). `_ALL` has no
decimals: `decimal_type` makes their `ColumnType` from precision and scale.

To add a type that Delta has: add its `ColumnType` to `_ALL` below, of a class of its own if its values are
not those of another type. `encode` and `decode` must keep the order of the values. Give `exact_of` if the
values in Python are not plain numbers, and `limits` if not every stored number is a value. If the type has a
form of its own in text, JSON, SQL, statistics or digests, change the places that ask for the Arrow type, too:
`grep -rn "types.is_" warehouse query jobs` finds them. A type that Delta does not have, such as a time of
day, cannot be stored in `events`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.warehouse.columns.arrow_buffers import zero_for_null
from tidemark.warehouse.columns.moments import exact_us
from tidemark.warehouse.columns.ticks import DAY_US, FIRST_US, LAST_US, from_epoch_us
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.private.tokens import Token, asked_token, text_prefix, utf8_of

MEASURE_DIGITS = 18  # of a decimal that fits into a BIGINT
DECIMAL_DIGITS = 38  # of a decimal at most

INTEGER_PATTERN = r"[+-]?[0-9]+"
NUMBER_PATTERN = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
NOT_FINITE_PATTERN = r"(?i:nan|[+-]?inf(inity)?)"
ZONE_PATTERN = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)"
_USUAL_WHOLE = "-?(0|[1-9][0-9]*)"
_FLOAT_PATTERN = f"{NUMBER_PATTERN}|{NOT_FINITE_PATTERN}"
_DATE_PATTERN = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIMESTAMP_PATTERN = _DATE_PATTERN + r"([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?" + ZONE_PATTERN + "?)?"

_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_TOKEN = re.compile(r"token\(((?:reveal:)?[0-9a-f-]{32,})\)")
SQL_OF_TOKENS = "struct<token: string>"  # a type that SQL compares with no text
_YEARS = "the years 1 to 9999"


class Storage(Enum):
    """How the tables of runs and of the ledger store a column; the value is the Arrow type."""

    DOUBLE = pa.float64()
    BIGINT = pa.int64()
    STRING = pa.string()
    BINARY = pa.binary()


@dataclass(frozen=True, slots=True)
class Limits:
    """The least and the greatest stored number that is accepted, both inclusive, and their description."""

    least: int
    greatest: int
    description: str


def _as_numpy(array: pa.Array) -> NDArray[Any]:
    return np.from_dlpack(array)


def encode_integers(array: pa.Array) -> NDArray[np.int64]:
    """Integers as int64; NULL as 0."""
    return _as_numpy(zero_for_null(array.cast(pa.int64())))


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnType:
    """One type of column.

    name          Delta's name
    sql           Spark's SQL name
    arrow         a regular expression that matches the text of each Arrow type that is stored as this one
    storage       how runs, marks and ledger store it
    is_measure    whether a measure may have the type
    limits        the stored numbers that are accepted; None accepts all
    unit_us       for an event time, the microseconds of one stored unit
    digits        for integers and decimals, the decimal digits that hold every value, as Spark defines them
    scale         for decimals, the digits after the decimal point
    is_decimal    whether it is a decimal
    wider         Delta's names of the types that a column of this type may be stored as without loss
    duckdb        DuckDB's name; the SQL name in upper case if left out
    text_pattern  a regular expression of the accepted text; None accepts any text
    """

    name: str
    sql: str
    arrow: str
    storage: Storage
    is_measure: bool = True
    limits: Limits | None = None
    unit_us: int | None = None
    digits: int = 0
    scale: int = 0
    is_decimal: bool = False
    wider: tuple[str, ...] = ()
    duckdb: str = ""
    text_pattern: str | None = None

    is_number: ClassVar[bool] = True  # whether its values in Python are plain numbers: int, float or Decimal
    is_token: ClassVar[bool] = False  # whether its values are tokens: equal or not, without an order

    @property
    def delta(self) -> str:
        """The type of the column in the table `events`, by Delta's name."""
        return self.name

    def encode(self, array: pa.Array) -> NDArray[Any]:
        """The stored numbers of an Arrow array of the type, undefined where NULL; not called for text."""
        return encode_integers(array)

    def decode(self, stored: Any) -> Any:
        """The value in Python of a stored number, or of a text as bytes."""
        return int(stored)

    def exact_of(self, value: Any) -> Fraction | bytes | None:  # noqa: ARG002
        """The number of a value in Python, in units of the stored ones, exactly, or the text as bytes.

        None for a value of another type. Not called for types of plain numbers.
        """
        return None

    def convert(self, value: Any) -> Any:
        """The value in Python of a value of a type that widens to this one."""
        return value

    @property
    def is_double(self) -> bool:
        """Whether it is stored as DOUBLE."""
        return self.storage is Storage.DOUBLE

    @property
    def is_text(self) -> bool:
        """Whether it is stored as it is, as text or bytes."""
        return self.storage in {Storage.STRING, Storage.BINARY}

    @property
    def is_key(self) -> bool:
        """Whether a key may have the type: all but decimals of more than 18 digits."""
        return self.is_measure or not self.is_number

    @property
    def is_integer(self) -> bool:
        """Whether its values are integers; a time or date has no digits and is none."""
        return self.digits > 0 and not self.is_decimal


class _Integers(ColumnType):
    def convert(self, value: Any) -> Any:
        return int(value)


class _Doubles(ColumnType):
    def encode(self, array: pa.Array) -> NDArray[np.float64]:
        """Doubles, -0.0 as 0.0; NULL as 0.0."""
        return _as_numpy(zero_for_null(array.cast(pa.float64()))) + 0.0

    def decode(self, stored: Any) -> float:
        return float(stored)

    def convert(self, value: Any) -> float:
        return float(value)


class _Decimals(ColumnType):
    def encode(self, array: pa.Array) -> NDArray[np.int64]:
        """The unscaled integers of decimals with at most 18 digits: the low word of each 128-bit value."""
        wide = array.cast(pa.decimal128(DECIMAL_DIGITS, array.type.scale))
        words = np.frombuffer(wide.buffers()[1], dtype=np.int64)
        low = words[2 * wide.offset : 2 * (wide.offset + len(wide)) : 2].copy()
        low[_as_numpy(wide.is_null().cast(pa.uint8())).astype(bool)] = 0
        return low

    def decode(self, stored: Any) -> Decimal:
        return Decimal(int(stored)).scaleb(-self.scale)

    def convert(self, value: Any) -> Decimal:
        return Decimal(value)


class _Booleans(ColumnType):
    is_number = False

    def encode(self, array: pa.Array) -> NDArray[np.int64]:
        return encode_integers(array.cast(pa.int8()))

    def decode(self, stored: Any) -> bool:
        return bool(stored)

    def exact_of(self, value: Any) -> Fraction | None:
        return Fraction(int(value)) if isinstance(value, bool) else None


class _Dates(ColumnType):
    is_number = False

    def encode(self, array: pa.Array) -> NDArray[np.int64]:
        return encode_integers(array.cast(pa.int32()))

    def decode(self, stored: Any) -> date:
        return from_epoch_us(int(stored) * DAY_US).date()

    def exact_of(self, value: Any) -> Fraction | None:
        return exact_us(value) / DAY_US if isinstance(value, str | date) else None


class _Timestamps(ColumnType):
    is_number = False

    def encode(self, array: pa.Array) -> NDArray[np.int64]:
        return encode_integers(array.cast(pa.timestamp("us", tz=array.type.tz)))

    def decode(self, stored: Any) -> datetime:
        return from_epoch_us(int(stored))

    def exact_of(self, value: Any) -> Fraction | None:
        return exact_us(value) if isinstance(value, str | date) else None

    def convert(self, value: Any) -> datetime:
        return from_epoch_us(math.floor(exact_us(value)))


class _Strings(ColumnType):
    is_number = False

    def decode(self, stored: Any) -> str:
        text: str = stored.decode("utf-8", "surrogateescape")
        return text

    def exact_of(self, value: Any) -> bytes | None:
        return utf8_of(value)

    def convert(self, value: Any) -> str:
        if isinstance(value, datetime):
            return value.astimezone(UTC).replace(tzinfo=None).isoformat(sep=" ")
        return str(value)


class _Binaries(ColumnType):
    is_number = False

    def decode(self, stored: Any) -> Any:
        return stored

    def exact_of(self, value: Any) -> bytes | None:
        return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tokens(ColumnType):
    """The tokens of a secret; a value that is asked may be a token, or the value that one is made of."""

    fingerprint: str

    is_number: ClassVar[bool] = False
    is_token: ClassVar[bool] = True

    @property
    def delta(self) -> str:
        return "binary"

    def decode(self, stored: Any) -> Token:
        return Token(stored, text_prefix(self.fingerprint))

    def exact_of(self, value: Any) -> bytes:
        return bytes(asked_token(self.fingerprint, value))

    def convert(self, value: Any) -> str:
        return str(value)


def _integer(name: str, sql: str, arrow: str, digits: int, wider: tuple[str, ...]) -> ColumnType:
    return _Integers(
        name=name, sql=sql, arrow=arrow, storage=Storage.BIGINT, digits=digits, wider=wider,
        text_pattern=INTEGER_PATTERN,
    )  # fmt: skip


def _floating(name: str, wider: tuple[str, ...]) -> ColumnType:
    return _Doubles(
        name=name, sql=name, arrow=name, storage=Storage.DOUBLE, wider=wider, text_pattern=_FLOAT_PATTERN
    )


# Unsigned integers become the type that holds them all, as Spark reads them from Parquet.
_ALL = (
    _Booleans(
        name="boolean", sql="boolean", arrow="bool", storage=Storage.BIGINT, is_measure=False,
        text_pattern="(?i:true|false)",
    ),
    _integer("byte", "tinyint", "int8", 3, ("short", "integer", "long")),
    _integer("short", "smallint", "int16|uint8", 5, ("integer", "long")),
    _integer("integer", "int", "int32|uint16", 10, ("long",)),
    _integer("long", "bigint", "int64|uint32", 20, ()),
    _floating("float", ("double",)),
    _floating("double", ()),
    _Strings(
        name="string", sql="string", arrow="string|large_string|string_view", storage=Storage.STRING,
        is_measure=False, duckdb="VARCHAR",
    ),
    _Binaries(
        name="binary", sql="binary", arrow=r"binary|large_binary|binary_view|fixed_size_binary\[\d+\]",
        storage=Storage.BINARY, is_measure=False, duckdb="BLOB",
    ),
    _Dates(
        name="date", sql="date", arrow=r"date32\[day\]|date64\[ms\]", storage=Storage.BIGINT, unit_us=DAY_US,
        limits=Limits(FIRST_US // DAY_US, LAST_US // DAY_US, _YEARS), text_pattern=_DATE_PATTERN,
    ),
    _Timestamps(
        name="timestamp", sql="timestamp", arrow=r"timestamp\[\w+, tz=.+\]", storage=Storage.BIGINT,
        unit_us=1, limits=Limits(FIRST_US, LAST_US, _YEARS), duckdb="TIMESTAMPTZ",
        text_pattern=_TIMESTAMP_PATTERN,
    ),
)  # fmt: skip
COLUMN_TYPES = {kind.name: kind for kind in _ALL}  # by Delta's name; decimals are not among them

# The types that text without a declared type may have, in the order in which they are tried, with the usual
# texts; None for all texts that the type accepts. Text that is none of them is a string.
GUESSED_TYPES = {
    "boolean": None,
    "long": f"^({_USUAL_WHOLE})$",
    "double": rf"^(({_USUAL_WHOLE}(\.[0-9]*)?|-?\.[0-9]+)([eE][+-]?[0-9]+)?|{NOT_FINITE_PATTERN})$",
    "date": None,
    "timestamp": None,
}


@lru_cache(maxsize=1024)
def decimal_type(precision: int, scale: int) -> ColumnType:
    """The type decimal(precision,scale). One of more than 18 digits is not a measure."""
    name = f"decimal({precision},{scale})"
    return _Decimals(
        name=name, sql=name, arrow=rf"decimal\d*\({precision}, {scale}\)", storage=Storage.BIGINT,
        is_measure=precision <= MEASURE_DIGITS, digits=precision, scale=scale, is_decimal=True,
        text_pattern=NUMBER_PATTERN,
    )  # fmt: skip


def token_type(fingerprint: str) -> str:
    """The name of the type of a private column, whose tokens are of the secret with this fingerprint."""
    return f"token({fingerprint})"


_UINT64 = decimal_type(20, 0)  # the least type that holds all its values, as Spark reads them from Parquet


def find_column_type(name: str) -> ColumnType | None:
    """The type of Delta's name, such as `long` or `decimal(10,2)`; None for nested and unknown types."""
    return COLUMN_TYPES.get(name) or _decimal_named(name) or _tokens_named(name)


def column_type(name: str) -> ColumnType:
    """The type of Delta's name; InputError for nested and unknown types. O(1)."""
    found = find_column_type(name)
    if found is None:
        raise InputError(f"unknown column type: {name}. Expected one of: {', '.join(COLUMN_TYPES)}, decimal.")
    return found


def sql_column_type(name: str) -> ColumnType | None:
    """The type of the SQL name, such as `bigint`; None for nested and unknown types."""
    by_name = (kind for kind in COLUMN_TYPES.values() if kind.sql == name)
    return next(by_name, None) or _decimal_named(name)


def sql_name(name: str) -> str:
    """The SQL name of Delta's name; the SQL text of a nested type is returned as it is."""
    found = find_column_type(name)
    return name if found is None else found.sql


def is_wider(name: str, narrow: str) -> bool:
    """Whether each value of the type `narrow` is one of the type `name`, stored as the same number.

    Both are Delta's names. Integers of more bits, double for float, and decimals of more digits with the same
    scale are wider.
    """
    kind, before = find_column_type(name), find_column_type(narrow)
    if kind is None or before is None:
        return False
    more_digits = kind.is_decimal and before.is_decimal and kind.scale == before.scale
    return name in before.wider or (more_digits and DECIMAL_DIGITS >= kind.digits > before.digits)


def arrow_column_type(arrow: pa.DataType) -> ColumnType | None:
    """The type that an Arrow type is stored as; None if there is none.

    None for timestamps without a zone: what they mean depends on where they come from.
    """
    if pa.types.is_decimal(arrow):
        fits = arrow.precision <= DECIMAL_DIGITS and arrow.scale >= 0
        return decimal_type(arrow.precision, arrow.scale) if fits else None
    if pa.types.is_uint64(arrow):
        return _UINT64
    text = str(arrow)
    return next((kind for kind in COLUMN_TYPES.values() if re.fullmatch(kind.arrow, text)), None)


def type_text(name: str) -> str:
    """Delta's name of a type for errors, with the Arrow type that may have become it."""
    return f"{name}, as which uint64 is stored" if name == _UINT64.name else name


def is_time_type(name: str) -> bool:
    """Whether an event time may have the type of Delta's name."""
    found = find_column_type(name)
    return found is not None and found.unit_us is not None


def measure_type_names() -> str:
    """The names of all types of measures, for error messages."""
    measures = [kind for kind in COLUMN_TYPES.values() if kind.is_measure]
    numbers = [kind.name for kind in measures if kind.is_number]
    others = [kind.name for kind in measures if not kind.is_number]
    return ", ".join([*numbers, f"decimal (up to {MEASURE_DIGITS} digits)", *others])


def key_type_names() -> str:
    """The names of all types of keys, for error messages."""
    others = [kind for kind in COLUMN_TYPES.values() if kind.is_key and not kind.is_measure]
    others.sort(key=lambda kind: not kind.is_text)
    return ", ".join([*(kind.name for kind in others), measure_type_names()])


def time_type_names() -> str:
    """The names of all types of event times, the finest first, for error messages."""
    times = sorted((kind.unit_us, kind.name) for kind in COLUMN_TYPES.values() if kind.unit_us is not None)
    return " or ".join(name for _, name in times)


@lru_cache(maxsize=1024)
def _tokens_named(name: str) -> ColumnType | None:
    match = _TOKEN.fullmatch(name)
    if match is None:
        return None
    return _Tokens(
        name=name, sql=SQL_OF_TOKENS, arrow="", storage=Storage.BINARY, is_measure=False, duckdb="BLOB",
        fingerprint=match[1],
    )  # fmt: skip


@lru_cache(maxsize=1024)
def _decimal_named(name: str) -> ColumnType | None:
    match = _DECIMAL.fullmatch(name)
    return decimal_type(int(match[1]), int(match[2])) if match else None
