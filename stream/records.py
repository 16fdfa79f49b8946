"""Text records, JSON or CSV, as the warehouse's columns; what is no such record keeps its text and a reason.

Each record is looked at twice: strict.py tells whether it is strictly JSON or CSV and says what it means,
then Spark's reader makes the columns of it. A record that is refused at first never comes to Spark's reader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from deltalake import Schema

from tidemark.stream.strict_text import Strict
from tidemark.warehouse.columns.schema import ddl, delta_fields, quoted
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.settings.options import Options

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame

_CORRUPT = "_corrupt"


def parse(
    records: DataFrame, options: Options, form: Literal["json", "csv"], columns: list[str] | None = None
) -> DataFrame:
    """Parses the text column `value`; the column `position` says where the source has each record.

    A record is one JSON object (RFC 8259) with one of the warehouse's columns at least, or one line of CSV
    (RFC 4180) with all of them. A column that a JSON object does not have is NULL, fields that are no
    columns are passed by; a CSV field without text is NULL. `columns` is the order of CSV's fields, without
    it the warehouse's own.

    The result has the warehouse's columns and `_position`, `_raw` and `_reason`, as `stream.start` takes
    them.
    """
    from pyspark.sql import functions as F

    types = dict(options.columns)
    if not types:
        raise InputError("the warehouse has no columns yet. Create it with a schema, or load a batch first.")
    unknown = sorted(set(columns or []) ^ set(types)) if columns else []
    if unknown:
        raise InputError(f"columns must name each column of the warehouse once; {unknown} do not match.")
    named = [(name, types[name]) for name in columns or types]
    strict = _strict(records, form, named)
    told = records.select(
        F.col("value").alias("_raw"),
        F.col("position").alias("_position"),
        _told_by(strict)(F.col("value").cast("binary")).alias("_wrong"),
    )
    # One line break at the end is the producer's, not the last field's.
    text = F.regexp_replace(F.col("_raw").cast("string"), r"\r?\n\z", "")
    text = F.when(F.col("_wrong").isNull(), text)
    schema = ddl([*named, (_CORRUPT, "string")])
    settings = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, "escape": '"'}
    parsed = F.from_json(text, schema, settings) if form == "json" else F.from_csv(text, schema, settings)
    rows = told.select(parsed.alias("p"), "_raw", "_position", "_wrong")
    own = [F.col(f"p.{quoted(name)}").alias(name) for name in types]
    return rows.select(*own, "_position", "_raw", _reason(strict).alias("_reason"))


def _strict(records: DataFrame, form: Literal["json", "csv"], named: list[tuple[str, str]]) -> Strict:
    spark = records.sparkSession
    fields = delta_fields(spark.createDataFrame([], ddl(named)).schema)
    kinds = [field.type for field in pa.schema(Schema(fields))]
    return Strict(form, tuple((name, kind, said) for (name, said), kind in zip(named, kinds, strict=True)))


def _told_by(strict: Strict) -> Callable[[Column], Column]:
    """A function of binary records that says why each is refused."""
    from pyspark.sql.pandas.functions import arrow_udf

    def tell(batch: pa.Array) -> pa.Array:
        return strict(batch)

    make: Any = arrow_udf  # published with types that fit no call
    found: Callable[[Column], Column] = make(tell, "string")
    return found


def _reason(strict: Strict) -> Column:
    """Why a record is refused; NULL where it is not."""
    from pyspark.sql import functions as F

    raw, why = F.col("_raw").cast("string"), F.lit(strict.no_record)
    if strict.form == "json":
        for name, _, kind in reversed([one for one in strict.columns if "'" not in one[0]]):
            said = F.get_json_object(raw, f"$['{name}']")
            wrong = F.col(f"p.{quoted(name)}").isNull() & said.isNotNull()
            why = F.when(wrong, F.concat(F.lit(f"{name} is no {kind}: "), said)).otherwise(why)
    return (
        F.when(F.col("_wrong").isNotNull(), F.col("_wrong"))
        .when(F.col("p").isNull() | F.col(f"p.{_CORRUPT}").isNotNull(), why)
        .otherwise(F.lit(None).cast("string"))
    )
