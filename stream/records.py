"""Text records, JSON or CSV, as the warehouse's columns; what does not parse keeps its text and a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as F

from warehouse.errors import InputError
from warehouse.options import Options
from warehouse.schema import ddl, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_CORRUPT = "_corrupt"


def parse(
    records: DataFrame, options: Options, form: Literal["json", "csv"], columns: list[str] | None = None
) -> DataFrame:
    """Parses the text column `value`; the column `position` says where the source has each record.

    `columns` is the order of CSV's fields, without it the warehouse's own. The result has the
    warehouse's columns and `_position`, `_raw` and `_reason`, as `stream.start` takes them.
    """
    types = dict(options.columns)
    if not types:
        raise InputError("the warehouse has no columns yet. Create it with a schema, or load a batch first.")
    unknown = sorted(set(columns or []) ^ set(types)) if columns else []
    if unknown:
        raise InputError(f"columns must name each column of the warehouse once; {unknown} do not match.")
    schema = ddl([*((name, types[name]) for name in columns or types), (_CORRUPT, "string")])
    settings = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    text = F.col("value").cast("string")
    parsed = F.from_json(text, schema, settings) if form == "json" else F.from_csv(text, schema, settings)
    rows = records.select(
        parsed.alias("p"), F.col("value").alias("_raw"), F.col("position").alias("_position")
    )
    own = [F.col(f"p.{quoted(name)}").alias(name) for name in types]
    return rows.select(*own, "_position", "_raw", _reason(options, form).alias("_reason"))


def _reason(options: Options, form: str) -> Column:
    """Why a record is refused; NULL where it is not."""
    raw = F.col("_raw").cast("string")
    why = F.lit(f"no {form} record of the columns " + ", ".join(f"{n} {t}" for n, t in options.columns))
    if form == "json":
        for name, kind in reversed([(n, t) for n, t in options.columns if "'" not in n]):
            said = F.get_json_object(raw, f"$['{name}']")
            wrong = F.col(f"p.{quoted(name)}").isNull() & said.isNotNull()
            why = F.when(wrong, F.concat(F.lit(f"{name} is no {kind}: "), said)).otherwise(why)
    return (
        F.when(F.col("_raw").isNull(), F.lit("an empty record"))
        .when(F.col("p").isNull() | F.col(f"p.{_CORRUPT}").isNotNull(), why)
        .otherwise(F.lit(None).cast("string"))
    )
