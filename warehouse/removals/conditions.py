"""Which rows a delete selects: a condition in the language of scans, or the values of columns.

A condition is asked in tasks, of rows of history alone. It depends on the row alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Protocol, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.options import CONDITIONS


class RowCondition(Protocol):
    """Selects rows. It travels to tasks, so it can be pickled."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of `events` that it looks at, by their stored names."""

    def mask(self, rows: pa.Table) -> NDArray[np.bool_]:
        """Which of the rows it selects; a row for which it is NULL is not selected.

        `rows` have its columns in plain types. InputError if it cannot be evaluated on one of them.
        """


def condition_of(where: str, columns: Mapping[str, str]) -> RowCondition:
    """The condition that the text is, over columns, which are Delta's types by name.

    InputError unless it is one expression, as `wh.quantile(where=...)` takes it.
    """
    return cast(RowCondition, import_module(CONDITIONS).where_condition(where, columns))
