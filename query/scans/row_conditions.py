"""Conditions of scans, asked of rows in memory: which rows a delete selects.

The text is checked as `where` of questions is, and DuckDB evaluates the same SQL. A row for which the
condition is NULL is not selected. The condition is asked of all given rows, so a condition that fails on one
row is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.query.reading.connections import registered, run_query, taken_connection
from tidemark.query.reading.duckdb_errors import Raised, report_duckdb_errors
from tidemark.query.scans.encoded_rows import native_column
from tidemark.query.scans.expressions import Expression, checked_expression, unfit
from tidemark.warehouse.columns.arrow_buffers import arrow_array
from tidemark.warehouse.columns.schema import arrow_fields
from tidemark.warehouse.columns.value_encoding import as_numpy, single_array
from tidemark.warehouse.removals.conditions import Share

_ROWS, _PLACE = "rows of a file", "place of a row"  # no column of a warehouse has a name with a space
_OPERATION = "a condition"


@dataclass(frozen=True, slots=True)
class WhereCondition:
    """A checked condition; `types` are Delta's types of its columns, in their order. See `RowCondition`."""

    expression: Expression
    types: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The stored names of its columns."""
        return self.expression.columns

    @property
    def constants(self) -> tuple[str, ...]:
        """The texts and numbers in it, as text."""
        return self.expression.constants

    def share(self, _: Mapping[str, Any]) -> Share:
        """See `RowCondition.share`: statistics are not looked at."""
        return "some"

    def mask(self, rows: pa.Table) -> NDArray[np.bool_]:
        """Which of the rows it selects. InputError if it fails on one, or for text that is not UTF-8."""
        fields = arrow_fields(dict(zip(self.columns, self.types, strict=True)))
        columns = [native_column(rows.column(one.name), one) for one in fields]
        places = arrow_array(np.arange(rows.num_rows))
        table = pa.Table.from_arrays([*columns, places], [*self.columns, _PLACE])
        statement = f'SELECT "{_PLACE}" FROM "{_ROWS}" WHERE ({self.expression.sql})'
        with (
            taken_connection() as taken,
            report_duckdb_errors(_OPERATION, Raised(), lambda error: unfit(self.expression.text, error)),
            registered(taken.connection, **{_ROWS: table}),
        ):
            found = run_query(taken.connection, lambda: taken.connection.sql(statement).to_arrow_table())
        selected = np.zeros(rows.num_rows, np.bool_)
        selected[as_numpy(single_array(found.column(0)))] = True
        return selected


def where_condition(text: str, columns: Mapping[str, str]) -> WhereCondition:
    """The text as a condition; `columns` has Delta's type of each column.

    InputError as `checked_expression`.
    """
    expression = checked_expression(text, columns)
    return WhereCondition(expression, tuple(columns[name] for name in expression.columns))
