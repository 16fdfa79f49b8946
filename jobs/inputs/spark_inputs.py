"""Reading a batch from files: Parquet, CSV, JSON lines or a Delta table; a folder or one file.

Text is read with the warehouse's own types and fails on the first record that does not parse:
a batch is loaded whole or not at all. An input that is to make a warehouse, or to be cut into several
batches, is read to its end before anything is made: bad rows must leave nothing behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tidemark.jobs.cli.arguments import FORMATS
from tidemark.warehouse import InputError, TidemarkError
from tidemark.warehouse.columns.schema import ddl, quoted
from tidemark.warehouse.columns.ticks import DAY_US, FIRST_US, LAST_US

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession

    from tidemark.warehouse.settings.options import Options

_ENDINGS = {
    "parquet": "parquet",
    "csv": "csv",
    "tsv": "tsv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
}
_UNREADABLE = re.compile(
    r"MALFORMED_RECORD|FAILED_READ_FILE|CANNOT_READ_FILE|UNABLE_TO_INFER_SCHEMA|PATH_NOT_FOUND|CANNOT_PARSE"
    r"|is not a Parquet file|BadRecordException|DELTA_MISSING|not a Delta table|BAD_RECORD|CAST_INVALID_INPUT"
    r"|DELTA_TABLE_NOT_FOUND|DELTA_PATH_DOES_NOT_EXIST|CSV header does not conform"
)


class Times(NamedTuple):
    """The least and the greatest time of an input, in microseconds since 1970, and its rows without one."""

    first: int | None
    last: int | None
    without: int


class Inputs(Protocol):
    """Reads batches; `Rows` are a DataFrame with Spark, `ArrowRows` without."""

    def read(self, path: str, kind: str | None, options: Options | None, *, cut: bool = False) -> Any:
        """The rows at `path`; `options` are the warehouse's where it is there; `cut`: into batches."""

    def check_times(self, rows: Any, names: Iterable[str]) -> None:
        """InputError where one of the columns has a time or a date outside the years 1 to 9999.

        A load refuses such rows by itself. This is for rows that are to make a warehouse or to be cut into
        batches, before anything is made of them.
        """

    def times(self, rows: Any, name: str) -> Times:
        """The least and the greatest time of the rows, and how many have none."""

    def between(self, rows: Any, name: str, start: int, stop: int) -> Any:
        """The rows whose time is in [start, stop), in microseconds since 1970."""

    def without(self, rows: Any, name: str) -> Any:
        """The rows without a time."""


class SparkInputs:
    """Reads batches with Spark."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def read(self, path: str, kind: str | None, options: Options | None, *, cut: bool = False) -> DataFrame:
        """The rows at `path`, read to their end once where they make a warehouse or are `cut`."""
        spark = self._spark
        try:
            chosen = kind or _guess(spark, path)
            reader = spark.read.format("csv" if chosen == "tsv" else chosen)
            if chosen in ("csv", "tsv"):
                reader = _csv(reader.option("sep", "\t" if chosen == "tsv" else ","), path, options)
            elif chosen == "json":
                reader = _json(spark, reader, path, options)
            rows = reader.load(path)
            if options is None or cut:
                rows.write.format("noop").mode("overwrite").save()
            return rows
        except Exception as error:
            raise as_input_error(error, path) from error

    def check_times(self, rows: DataFrame, names: Iterable[str]) -> None:
        """InputError where one of the columns has a time or a date outside the years 1 to 9999."""
        from pyspark.sql import functions as F

        types = dict(rows.dtypes)
        outside = {}
        for name in dict.fromkeys(names):
            column, day = F.col(quoted(name)), types.get(name) == "date"
            if day or types.get(name, "").startswith("timestamp"):
                at = F.unix_date(column) if day else F.unix_micros(column.cast("timestamp"))
                unit = DAY_US if day else 1
                outside[name] = F.count_if((at < FIRST_US // unit) | (at > LAST_US // unit))
        if outside:
            counts = [count.alias(f"c{i}") for i, count in enumerate(outside.values())]
            outside_the_years(dict(zip(outside, rows.agg(*counts).collect()[0], strict=True)))

    def times(self, rows: DataFrame, name: str) -> Times:
        """The least and the greatest time of the rows, and how many have none."""
        from pyspark.sql import functions as F

        at = _micros(name)
        nulls = F.coalesce(F.sum(F.when(at.isNull(), 1).otherwise(0)), F.lit(0))
        return Times(*rows.select(F.min(at), F.max(at), nulls).collect()[0])

    def between(self, rows: DataFrame, name: str, start: int, stop: int) -> DataFrame:
        """The rows whose time is in [start, stop), in microseconds since 1970."""
        at = _micros(name)
        return rows.where((at >= start) & (at < stop))

    def without(self, rows: DataFrame, name: str) -> DataFrame:
        """The rows without a time."""
        return rows.where(_micros(name).isNull())


def _micros(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.unix_micros(F.col(quoted(name)).cast("timestamp"))


def outside_the_years(counts: Mapping[str, int]) -> None:
    """InputError where a column has rows outside the years 1 to 9999; `counts` are how many, by column."""
    for name, count in counts.items():
        if count:
            raise InputError(
                f"{name} lies outside the years 1 to 9999 in {count:,} rows of the input. Nothing was "
                "changed. Mend such rows in the input, or leave them out."
            )


def as_input_error(error: Exception, path: str) -> Exception:
    """The package's error where Spark cannot find or parse the input; else the error itself."""
    text = str(error)
    if isinstance(error, TidemarkError) or not _UNREADABLE.search(text):
        return error
    reason = next((line for line in text.splitlines() if _UNREADABLE.search(line)), text).strip()
    return InputError(
        f"cannot read the input {path}: {reason[:300]}{_root_cause(error)} "
        f"Expected one of {', '.join(FORMATS)}; see --format."
    )


def _root_cause(error: Exception) -> str:
    """What Java says at the bottom of its causes, such as the text that is no number."""
    java = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    if java is None or java.getCause() is None:
        return ""
    while java.getCause() is not None:
        java = java.getCause()
    return f" ({str(java.getMessage()).splitlines()[0][:300]})" if java.getMessage() else ""


def _guess(spark: SparkSession, path: str) -> str:
    """The format by the name's ending, or by the files of a folder."""
    names = [path.rstrip("/").rsplit("/", 1)[-1]]
    jvm = spark._jvm  # noqa: SLF001  Hadoop's file system is not in the Python API
    if jvm is not None:
        hadoop = jvm.org.apache.hadoop.fs.Path(path)
        system = hadoop.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())  # noqa: SLF001
        if not system.exists(hadoop):
            raise InputError(f"no such input: {path}.")
        if system.getFileStatus(hadoop).isDirectory():
            if system.exists(jvm.org.apache.hadoop.fs.Path(path, "_delta_log")):
                return "delta"
            names = [status.getPath().getName() for status in system.listStatus(hadoop)]
    return guessed(path, names)


def guessed(path: str, names: Iterable[str]) -> str:
    """The format by the names of the files; InputError where they tell none, or several."""
    found = {_ENDINGS[part] for name in names for part in name.lower().split(".")[1:] if part in _ENDINGS}
    if len(found) != 1:
        raise InputError(
            f"cannot tell the format of {path} (found {sorted(found) or 'none'}). "
            f"Say --format {'|'.join(FORMATS)}."
        )
    return found.pop()


def _csv(reader: DataFrameReader, path: str, options: Options | None) -> DataFrameReader:
    # Without enforceSchema the header of every file is compared, so columns in another order are no mix-up.
    reader = reader.option("header", True).option("mode", "FAILFAST").option("enforceSchema", False)
    if options is None or not options.columns:
        return reader.option("inferSchema", True)
    header = reader.load(path).columns
    if not header:
        raise InputError(f"{path} has no header line. Expected one that names the columns.")
    return reader.schema(_ddl(header, options))


def _json(
    spark: SparkSession, reader: DataFrameReader, path: str, options: Options | None
) -> DataFrameReader:
    reader = reader.option("mode", "FAILFAST")
    if options is None or not options.columns:
        return reader.option("inferTimestamp", True)  # else no first batch of JSON could have an event time
    return reader.schema(_ddl(spark.read.option("mode", "FAILFAST").json(path).columns, options))


def _ddl(names: list[str], options: Options) -> str:
    """The input's columns in its own order, with the warehouse's types; strangers stay text."""
    types = dict(options.columns)
    return ddl((name, types.get(name, "string")) for name in names)
