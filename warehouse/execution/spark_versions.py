"""The versions of Spark that tidemark works with, and what the oldest of them lacks.

Spark 4.1 brought table functions of Arrow data. Spark 4.0 gets the same results from table functions that
take and yield rows, which takes longer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tidemark.warehouse.errors import InputError

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
