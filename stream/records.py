"""Parses text records, JSON or CSV, into the warehouse's columns; refused records keep text and reason.

Each record is parsed twice. strict_text.py checks that it is strictly JSON or CSV and unambiguous; then
Spark's reader converts it to columns. A record that the first check refuses never reaches Spark's reader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pyarrow as pa
from deltalake import Schema

from tidemark.stream.strict_text import StrictParser
from tidemark.warehouse.columns.schema import ddl, delta_fields, quoted
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.execution.spark_versions import column_function
from tidemark.warehouse.ingest.rejected import RECORD, RECORD_COLUMNS
from tidemark.warehouse.settings.options import Options

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_CORRUPT = "_corrupt"


def parse(
    records: DataFrame, options: Options, form: Literal["json", "csv"], columns: list[str] | None = None
) -> DataFrame:
    """Parses the text column `value` of `records`.

    records   also has the columns of RECORD that describe the source, such as `position`
    form      'json': one object (RFC 8259) with at least one of the warehouse's columns per record. Missing
              columns are NULL, other fields are ignored. 'csv': one line (RFC 4180) with all columns per
              record; an empty field is NULL
    columns   the order of the fields of CSV; by default the order of the warehouse's columns

    Returns the warehouse's columns and RECORD_COLUMNS, among them `_raw` (the text) and `_reason` (NULL if
    the record is accepted), as `stream.start` expects them. Raises InputError if the warehouse has no
    columns yet, or if `columns` does not match them.
    """
    from pyspark.sql import functions as F

    types = dict(options.columns)
    if not types:
        raise InputError("the warehouse has no columns yet. Create it with a schema, or load a batch first.")
    unknown = sorted(set(columns or []) ^ set(types)) if columns else []
    if unknown:
        raise InputError(f"columns must name each column of the warehouse once; {unknown} do not match.")
    named = [(name, types[name]) for name in columns or types]
    strict = _strict_parser(records, form, named)
    source_columns = [name for name in RECORD.names if name not in ("raw", "reason")]
    checked = records.select(
        F.col("value").alias("_raw"),
        *(F.col(name).alias(f"_{name}") for name in source_columns),
        column_function(strict, pa.binary(), "string")(F.col("value").cast("binary")).alias("_wrong"),
    )
    # A line break at the end belongs to the producer's framing, not to the last field.
    text = F.regexp_replace(F.col("_raw").cast("string"), r"\r?\n\z", "")
    text = F.when(F.col("_wrong").isNull(), text)
    schema = ddl([*named, (_CORRUPT, "string")])
    settings = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, "escape": '"'}
    parsed = F.from_json(text, schema, settings) if form == "json" else F.from_csv(text, schema, settings)
    rows = checked.select("*", parsed.alias("p")).withColumn("_reason", _reason(strict))
    parsed_columns = [F.col(f"p.{quoted(name)}").alias(name) for name in types]
    return rows.select(*parsed_columns, *RECORD_COLUMNS)


def _strict_parser(
    records: DataFrame, form: Literal["json", "csv"], named: list[tuple[str, str]]
) -> StrictParser:
    spark = records.sparkSession
    fields = delta_fields(spark.createDataFrame([], ddl(named)).schema)
    kinds = [field.type for field in pa.schema(Schema(fields))]
    columns = tuple((name, kind, type_name) for (name, type_name), kind in zip(named, kinds, strict=True))
    return StrictParser(form, columns)


def _reason(strict: StrictParser) -> Column:
    """The reason of the strict parser, or of Spark's reader if that refused the record; NULL if accepted."""
    from pyspark.sql import functions as F

    raw, reason = F.col("_raw").cast("string"), F.lit(strict.malformed)
    if strict.form == "json":
        for name, _, kind in reversed([column for column in strict.columns if "'" not in column[0]]):
            text = F.get_json_object(raw, f"$['{name}']")
            lost = F.col(f"p.{quoted(name)}").isNull() & text.isNotNull()
            reason = F.when(lost, F.concat(F.lit(f"{name} is no {kind}: "), text)).otherwise(reason)
    return (
        F.when(F.col("_wrong").isNotNull(), F.col("_wrong"))
        .when(F.col("p").isNull() | F.col(f"p.{_CORRUPT}").isNotNull(), reason)
        .otherwise(F.lit(None).cast("string"))
    )
