"""Reads a batch with Spark: files of Parquet, CSV or JSON lines, or a Delta table.

`warehouse/execution/input_files.py` says which files an input is. Spark gets a list of files, so it expands
no patterns, skips no folders and makes no columns of the names of folders.

CSV and JSON are read with the types of the warehouse's columns. The first record that does not parse fails
the load: a batch is loaded completely or not at all. An input that creates a warehouse, or that is cut into
several batches, is read to its end before anything is written, so that bad rows leave nothing behind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tidemark.jobs.inputs.hadoop_places import HadoopPlaces
from tidemark.jobs.inputs.spark_text import open_text
from tidemark.warehouse import InputError, TidemarkError
from tidemark.warehouse.columns.column_types import sql_column_type
from tidemark.warehouse.columns.schema import arrow_schema_of, column_types, delta_fields, quoted
from tidemark.warehouse.columns.ticks import DAY_US, FIRST_US, LAST_US
from tidemark.warehouse.execution.arrow_inputs import check_same_columns
from tidemark.warehouse.execution.input_files import FORMATS, described, find_inputs, format_of
from tidemark.warehouse.ingest.private_rows import as_text
from tidemark.warehouse.text.guessed_types import ANY_TYPES, Wanted
from tidemark.warehouse.text.rows import TEXT_FORMATS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession

    from tidemark.warehouse.settings.options import Options

_FOOTERS_AT_ONCE = 16  # footers of Parquet files: each is a request or two on an object store
_UNREADABLE = re.compile(
    r"MALFORMED_RECORD|FAILED_READ_FILE|CANNOT_READ_FILE|UNABLE_TO_INFER_SCHEMA|PATH_NOT_FOUND|CANNOT_PARSE"
    r"|is not a Parquet file|BadRecordException|DELTA_MISSING|not a Delta table|BAD_RECORD|CAST_INVALID_INPUT"
    r"|DELTA_TABLE_NOT_FOUND|DELTA_PATH_DOES_NOT_EXIST|No FileSystem for scheme"
)


class Times(NamedTuple):
    """The first and last time of an input in microseconds since 1970, and the number of rows without a time.

    `first` and `last` are inclusive, and None if no row has a time.
    """

    first: int | None
    last: int | None
    without: int


class SparkInputs:
    """Reads batches with Spark, with the calls of `LocalInputs`; rows are a DataFrame."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.guessed = False
        self._check: Callable[[], None] | None = None

    def read(
        self,
        given: str | Sequence[str],
        kind: str | None,
        options: Options | None,
        *,
        cut: bool = False,
        wanted: Wanted = ANY_TYPES,
        evolve: bool = False,
    ) -> DataFrame:
        """See `LocalInputs.read`."""
        spark, several = self._spark, [given] if isinstance(given, str) else given
        try:
            places = HadoopPlaces(spark)
            found = find_inputs(several, places)
            paths, file_format = list(found.paths), format_of(several, found, kind)
            if file_format in TEXT_FORMATS:
                return self._read_text(paths, file_format, options, wanted, cut=cut, evolve=evolve)
            reader = spark.read.format(file_format)
            if file_format == "parquet":
                # A * in these names is a part of the name. Without the second option, Spark also reads the
                # files that the * would match.
                reader = reader.option("__globPaths__", False).option("recursiveFileLookup", True)
                _check_same_columns(reader, paths, places)
            rows = reader.load(paths if len(paths) > 1 else paths[0])  # Delta takes one
            if options is None or cut:
                rows.write.format("noop").mode("overwrite").save()
            return rows
        except Exception as error:
            raise as_input_error(error, described(several)) from error

    def _read_text(
        self,
        paths: list[str],
        form: str,
        options: Options | None,
        wanted: Wanted,
        *,
        cut: bool,
        evolve: bool,
    ) -> DataFrame:
        text = open_text(self._spark, paths, form, private=bool(options and options.private))
        columns = options.columns if options else ()
        stored = None
        if options is not None and columns:
            stored = as_text(arrow_schema_of(self._spark, options.given_columns.items()), options)
        schema = text.guess(wanted, stored) if stored is None or evolve else text.schema(stored)
        self.guessed = not columns
        self._check = partial(text.check, schema)
        if options is None or cut:
            self._check()
        return text.rows(schema)

    def check(self) -> None:
        """See `LocalInputs.check`."""
        if self._check is not None:
            self._check()

    def check_times(self, rows: DataFrame, names: Iterable[str]) -> None:
        """See `LocalInputs.check_times`."""
        from pyspark.sql import functions as F

        types = dict(rows.dtypes)
        outside = {}
        for name in dict.fromkeys(names):
            kind = sql_column_type(types.get(name, ""))
            if kind is not None and kind.unit_us:
                time = _micros(rows, name)
                outside[name] = F.count_if((time < FIRST_US) | (time > LAST_US))
        if outside:
            counts = [count.alias(f"c{i}") for i, count in enumerate(outside.values())]
            check_in_range(dict(zip(outside, rows.agg(*counts).collect()[0], strict=True)))

    def times(self, rows: DataFrame, name: str) -> Times:
        """See `LocalInputs.times`."""
        from pyspark.sql import functions as F

        micros = _micros(rows, name)
        nulls = F.coalesce(F.sum(F.when(micros.isNull(), 1).otherwise(0)), F.lit(0))
        return Times(*rows.select(F.min(micros), F.max(micros), nulls).collect()[0])

    def starts(self, rows: DataFrame, name: str, first: int, span: int) -> list[int]:
        """See `LocalInputs.starts`."""
        from pyspark.sql import functions as F

        after = _micros(rows, name) - F.lit(first)
        start = (after - F.pmod(after, F.lit(span))).alias("start")
        return sorted(
            first + row.start for row in rows.select(start).where("start IS NOT NULL").distinct().collect()
        )

    def between(self, rows: DataFrame, name: str, start: int, stop: int) -> DataFrame:
        """See `LocalInputs.between`."""
        micros = _micros(rows, name)
        return rows.where((micros >= start) & (micros < stop))

    def without(self, rows: DataFrame, name: str) -> DataFrame:
        """See `LocalInputs.without`."""
        return rows.where(_micros(rows, name).isNull())


def _micros(rows: DataFrame, name: str) -> Column:
    """A column of times or dates in microseconds since 1970, as `local_inputs` computes it.

    Dates and times without a zone are those of UTC; a cast to a timestamp would take the session's zone.
    Dates outside the years 1 to 9999 become some day outside these years.
    """
    from pyspark.sql import functions as F

    column = F.col(quoted(name))
    kind = rows.select(column).dtypes[0][1]
    if kind not in ("date", "timestamp_ntz"):
        return F.unix_micros(column.cast("timestamp"))
    days, farthest = F.unix_date(column.cast("date")), F.lit(LAST_US // DAY_US + 1)
    clipped = F.when(days.isNotNull(), F.least(F.greatest(days, -farthest), farthest))  # both skip NULL
    midnight = clipped * F.lit(DAY_US)
    if kind == "date":
        return midnight
    seconds = (F.hour(column) * 60 + F.minute(column)) * 60 + F.extract(F.lit("SECOND"), column)
    return midnight + (seconds * 10**6).cast("long")


def check_in_range(counts: Mapping[str, int]) -> None:
    """InputError if a count is positive; `counts` are the rows outside the years 1 to 9999 by column."""
    for name, count in counts.items():
        if count:
            raise InputError(
                f"{name} lies outside the years 1 to 9999 in {count:,} rows of the input. Nothing was "
                "changed. Correct these rows in the input, or remove them."
            )


def as_input_error(error: Exception, path: str) -> Exception:
    """An InputError if Spark could not find or parse the input; otherwise the same error."""
    text = str(error)
    if re.search(r"data source: `?delta\b", text):
        from tidemark.jobs.spark.session import DELTA_REMEDY

        return InputError(f"this Spark cannot read Delta tables: it has no jar of Delta's. {DELTA_REMEDY}")
    if isinstance(error, TidemarkError) or not _UNREADABLE.search(text):
        return error
    reason = next((line for line in text.splitlines() if _UNREADABLE.search(line)), text).strip()
    return InputError(
        f"cannot read the input {path}: {reason[:300]}{_root_cause(error)} "
        f"Expected one of {', '.join(FORMATS)}; see --format."
    )


def _root_cause(error: Exception) -> str:
    """The message of the innermost cause in Java, which may quote the text that does not parse; or ""."""
    java = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    if java is None or java.getCause() is None:
        return ""
    while java.getCause() is not None:
        java = java.getCause()
    return f" ({str(java.getMessage()).splitlines()[0][:300]})" if java.getMessage() else ""


def _check_same_columns(reader: DataFrameReader, paths: list[str], places: HadoopPlaces) -> None:
    """InputError if Parquet files have different columns: Spark would take those of one file for all."""
    if len(paths) == 1:
        return
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as threads:
        schemas = dict(zip(threads.map(places.parquet_schema, paths[::-1]), paths[::-1], strict=True))
    frames = {path: reader.load(path) for path in sorted(schemas.values(), key=paths.index)}
    check_same_columns({path: column_types(delta_fields(rows.schema)) for path, rows in frames.items()})
