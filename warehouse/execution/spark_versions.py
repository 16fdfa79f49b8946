"""The versions of Spark that tidemark works with, and what the oldest of them lacks.

Spark 4.1 brought functions and table functions of Arrow data. Spark 4.0 gets the same results from functions
of pandas data, and from table functions that take and yield rows, which takes longer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemark.warehouse.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import Column

OLDEST = (4, 0)
VERSIONS = "4.0, 4.1 or 4.2"
OLDEST_OF_SERVER = (4, 2)  # its rules name this version's statements and functions


def check_version(version: str) -> None:
    """InputError if this Spark is older than the versions that work."""
    if _is_older(version, OLDEST):
        raise InputError(
            f"tidemark works with Spark {VERSIONS}; this is Spark {version}. Nothing was changed. Use one of "
            "these versions, or load without Spark: --engine local, or None in place of the session."
        )


def check_version_of_server(version: str) -> None:
    """InputError if this Spark is older than the version that the SQL server works with."""
    if _is_older(version, OLDEST_OF_SERVER):
        raise InputError(
            f"the SQL server works with Spark 4.2; this is Spark {version}. Use that version, or register "
            "the views in a session of this one: query.register_views(spark, uri)."
        )


def _is_older(version: str, oldest: tuple[int, int]) -> bool:
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is not None and tuple(map(int, numbers.groups())) < oldest


def column_function(
    function: Callable[[pa.Array], pa.Array], kind: pa.DataType, result: str
) -> Callable[[Column], Column]:
    """A function of columns of Spark.

    `function` takes an Arrow array of the type `kind` and returns one of the type that `result` names.
    """
    made: Any  # the published types of pyspark match no call
    try:
        from pyspark.sql.pandas.functions import arrow_udf as made
    except ImportError:
        return _of_pandas(function, kind, result)

    def of_arrow(values: pa.Array) -> pa.Array:
        return function(values)

    udf: Callable[[Column], Column] = made(of_arrow, result)
    return udf


def _of_pandas(
    function: Callable[[pa.Array], pa.Array], kind: pa.DataType, result: str
) -> Callable[[Column], Column]:
    import pandas as pd
    from pyspark.sql.pandas.functions import pandas_udf

    def of_pandas(values: pd.Series) -> pd.Series:
        return function(pa.array(values, kind)).to_pandas()

    of_pandas.__annotations__ = {"values": pd.Series, "return": pd.Series}
    untyped: Any = pandas_udf
    udf: Callable[[Column], Column] = untyped(of_pandas, result)
    return udf


def arrow_table_function(handler: Any, columns: str) -> Any:
    """A table function of Spark whose `eval` yields record batches, and takes one if it takes a table."""
    try:
        from pyspark.sql.functions import arrow_udtf
    except ImportError:
        from pyspark.sql.functions import udtf

        return udtf(_by_rows(handler), returnType=columns, useArrow=False)
    return arrow_udtf(handler, returnType=columns)


def _by_rows(handler: Any) -> Any:
    """The same table function, of rows. The class refers to nothing of tidemark: it is pickled."""

    class RowFunction:
        def eval(self, *table: Any) -> Iterator[Any]:
            import pyarrow as pa

            batches = [pa.RecordBatch.from_pylist([row.asDict()]) for row in table]
            for batch in handler().eval(*batches):
                columns = [column.to_pylist(maps_as_pydicts="strict") for column in batch.columns]
                yield from zip(*columns, strict=True)

    return RowFunction
