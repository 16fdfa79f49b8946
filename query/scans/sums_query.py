"""The exact sums of stored numbers by group, as one statement of DuckDB.

Each number becomes an integer and its place (warehouse/columns/exact_sums.py), and DuckDB adds integers
exactly. Integers are themselves, with the place NULL. The logarithm may err in its last digit, which leaves
2**52 < |q| <= 2**61. The product is made in two steps, because the power may be greater than all doubles.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tidemark.warehouse.columns.exact_sums import DIGITS, STEP, UNIT_BITS, Sums
from tidemark.warehouse.columns.value_encoding import Measure

_HALF = 2**32
_INFINITE = 1000  # the place of infinity, far from that of any number; that of minus infinity is -1000


def sums_query(measure: Measure, rows: str, value: str) -> str:
    """SQL of the sums of each code and place, for `sums_of_rows`.

    rows: a relation with the columns `code` and `value`; NULL and NaN in `value` are left out.
    """
    if measure.is_double:
        place = (
            f"CASE WHEN isinf({value}) THEN CASE WHEN {value} > 0 THEN {_INFINITE} ELSE -{_INFINITE} END "
            f"WHEN {value} = 0 THEN 0 ELSE floor(log2(abs({value})) / {STEP})::INTEGER END"
        )
        shift = f"({DIGITS} - {STEP} * place)"
        scaled = f"{value} * pow(2::DOUBLE, {shift} // 2) * pow(2::DOUBLE, {shift} - {shift} // 2)"
        number = f"CASE WHEN abs(place) = {_INFINITE} THEN 0 ELSE ({scaled})::BIGINT END"
        given = f"{value} IS NOT NULL AND NOT isnan({value})"
    else:
        place, number, given = "NULL::INTEGER", value, f"{value} IS NOT NULL"
    return (
        f"WITH placed AS (SELECT code, {value}, {place} AS place FROM {rows} WHERE {given}), "
        f"whole AS (SELECT code, place, {number} AS q FROM placed), "
        f"halves AS (SELECT *, q // {_HALF} AS h, q % {_HALF} AS l FROM whole) "
        "SELECT code, place, count(*), sum(q), sum(h * h), sum(h * l), "
        "sum(abs(l)::UBIGINT * abs(l)::UBIGINT) FROM halves GROUP BY code, place"
    )


def sums_of_rows(rows: Iterable[Sequence[Any]], codes: int) -> list[Sums]:
    """The sums of each code from 0 to `codes`, exclusive, of the rows of `sums_query`."""
    found = [Sums()] * codes
    for code, place, count, total, high, mixed, low in rows:
        if place is not None and abs(place) == _INFINITE:
            found[code] += Sums(negative=count) if place < 0 else Sums(positive=count)
        else:
            squares = (int(high) << 64) + (int(mixed) << 33) + int(low)
            unit = -UNIT_BITS if place is None else STEP * place - DIGITS
            found[code] += Sums.of_unit(unit, count, int(total), squares)
    return found
