"""Parses text records, JSON or CSV, into the warehouse's columns; refused records keep text and reason.

Spark brings the bytes of the records. Its tasks parse them with the strict reader of warehouse/text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from tidemark.warehouse.columns.schema import arrow_schema_of, ddl
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.ingest.rejected import RECORD, RECORD_COLUMNS
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.text.csv_records import CsvRecords
from tidemark.warehouse.text.json_records import JsonRecords
from tidemark.warehouse.text.records import RecordParser, TextColumns
from tidemark.warehouse.text.rows import are_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def parse(
    records: DataFrame,
    options: Options,
    form: Literal["json", "csv"],
    columns: list[str] | None = None,
    *,
    lines: bool = False,
) -> DataFrame:
    """Parses the text column `value` of `records`.

    records   also has the columns of RECORD that describe the source, such as `position`
    form      'json': one object (RFC 8259) with at least one of the warehouse's columns per record. Missing
              columns are NULL, other fields are ignored. 'csv': one line (RFC 4180) with all columns per
              record; an empty field is NULL
    columns   the order of the fields of CSV; by default the order of the warehouse's columns
    lines     the records are the lines of files: empty ones, and the headers of CSV, are no records

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
    parser_columns = TextColumns(arrow_schema_of(records.sparkSession, named))
    parser = JsonRecords(parser_columns) if form == "json" else CsvRecords(parser_columns)
    source_columns = [name for name in RECORD.names if name not in ("raw", "reason")]
    given = records.select(
        F.col("value").cast("binary").alias("_raw"),
        *(F.col(name).alias(f"_{name}") for name in source_columns),
    )
    # mapInArrow fails for names with a dot or a backquote: the columns are c0, c1, ... until then.
    numbered = [(f"c{i}", kind) for i, (_, kind) in enumerate(named)]
    source_types = [(field.name, field.dataType.simpleString()) for field in given.schema]
    rows = given.mapInArrow(
        _work(parser, form if lines else None), ddl([*numbered, *source_types, ("_reason", "string")])
    )
    place = {name: f"c{i}" for i, (name, _) in enumerate(named)}
    raw = F.col("_raw").cast("string").alias("_raw")
    return rows.select(
        *(F.col(place[name]).alias(name) for name in types),
        *(raw if name == "_raw" else F.col(name) for name in RECORD_COLUMNS),
    )


def _work(
    parser: RecordParser, file_form: str | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Parses batches whose first column is the text: adds c0, c1, ... before them, and the reasons after."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for given in batches:
            batch = given.filter(are_rows(given.column(0), file_form, parser.columns)) if file_form else given
            parsed = parser.parse(batch.column(0).cast(pa.binary()))
            reasons = pa.array(map(parsed.refused.get, range(len(batch))), pa.string())
            names = [*(f"c{i}" for i in range(parsed.rows.num_columns)), *batch.schema.names, "_reason"]
            yield pa.RecordBatch.from_arrays([*parsed.rows.columns, *batch.columns, reasons], names)

    return work
