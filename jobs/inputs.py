"""Reading a batch from files: Parquet, CSV, JSON lines or a Delta table; a folder or one file.

Text is read with the warehouse's own types and fails on the first record that does not parse:
a batch is loaded whole or not at all.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from warehouse import InputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

    from warehouse.options import Options

FORMATS = ("parquet", "csv", "json", "delta")
_ENDINGS = {
    "parquet": "parquet",
    "csv": "csv",
    "tsv": "csv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
}
_UNREADABLE = re.compile(
    r"MALFORMED_RECORD|FAILED_READ_FILE|CANNOT_READ_FILE|UNABLE_TO_INFER_SCHEMA|PATH_NOT_FOUND|CANNOT_PARSE"
    r"|is not a Parquet file|BadRecordException|DELTA_MISSING|not a Delta table|BAD_RECORD|CAST_INVALID_INPUT"
)


def read_batch(spark: SparkSession, path: str, kind: str | None, options: Options | None) -> DataFrame:
    """The rows at `path`; `options` are the warehouse's where it is there already.

    Where it is not, text is parsed once to its end, so that a bad record is found before
    anything is made.
    """
    try:
        chosen = kind or _guess(spark, path)
        reader = spark.read.format(chosen)
        if chosen == "csv":
            reader = _csv(spark, reader, path, options)
        elif chosen == "json":
            reader = _json(spark, reader, path, options)
        rows = reader.load(path)
        if options is None and chosen in ("csv", "json"):
            rows.write.format("noop").mode("overwrite").save()
        return rows
    except Exception as error:
        raise as_input_error(error, path) from error


def as_input_error(error: Exception, path: str) -> Exception:
    """The package's error where Spark cannot find or parse the input; else the error itself."""
    text = str(error)
    if isinstance(error, InputError) or not _UNREADABLE.search(text):
        return error
    reason = next((line for line in text.splitlines() if _UNREADABLE.search(line)), text).strip()
    return InputError(
        f"cannot read the input {path}: {reason[:300]} Expected one of {', '.join(FORMATS)}; see --format."
    )


def _guess(spark: SparkSession, path: str) -> str:
    """The format by the name's ending, or by the files of a folder."""
    names = [path.rstrip("/")]
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
    found = {_ENDINGS[part] for name in names for part in name.lower().split(".")[1:] if part in _ENDINGS}
    if len(found) != 1:
        raise InputError(
            f"cannot tell the format of {path} (found {sorted(found) or 'none'}). "
            f"Say --format {'|'.join(FORMATS)}."
        )
    return found.pop()


def _csv(spark: SparkSession, reader: DataFrameReader, path: str, options: Options | None) -> DataFrameReader:
    reader = reader.option("header", True).option("mode", "FAILFAST")
    if options is None or not options.columns:
        return reader.option("inferSchema", True)
    header = spark.read.option("header", True).csv(path).columns
    return reader.schema(_ddl(header, options))


def _json(
    spark: SparkSession, reader: DataFrameReader, path: str, options: Options | None
) -> DataFrameReader:
    reader = reader.option("mode", "FAILFAST")
    if options is None or not options.columns:
        return reader
    return reader.schema(_ddl(spark.read.option("mode", "FAILFAST").json(path).columns, options))


def _ddl(names: list[str], options: Options) -> str:
    """The input's columns in its own order, with the warehouse's types; strangers stay text."""
    types = dict(options.columns)
    sql = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}
    columns = [(name, types.get(name, "string")) for name in names]
    return ", ".join(f"`{name.replace('`', '``')}` {sql.get(kind, kind)}" for name, kind in columns)
