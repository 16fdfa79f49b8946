"""Parses text records, JSON or CSV, into the warehouse's columns; refused records keep text and reason.

Spark brings the bytes of the records. Its tasks parse them with the strict reader of warehouse/text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from tidemark.warehouse.columns.schema import arrow_schema_of, ddl
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.ingest.rejected import RECORD, RECORD_COLUMNS
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.text.csv_records import CsvRecords
from tidemark.warehouse.text.file_records import MARKS, FileRecords
from tidemark.warehouse.text.json_records import JsonRecords
from tidemark.warehouse.text.records import TextColumns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SOURCE_COLUMNS = tuple(name for name in RECORD.names if name not in ("raw", "reason"))
# A codec of Hadoop that changes nothing and cannot be cut, for the names that end in .csv. Spark's own Hadoop
# has renamed packages, and with them this option.
_UNCUT = {
    "io.compression.codecs": "org.apache.hadoop.io.compress.PassthroughCodec",
    "io.compress.passthrough.extension": ".csv",
    "org.apache.hadoop.shaded.io.compress.passthrough.extension": ".csv",
}


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
    columns   the order of the fields of CSV, which may leave out columns that were added to the warehouse
              later; by default the columns of its first batch, in their order
    lines     the records are the lines of files, as `read_lines` reads them. A file then means what it means
              to a load: a record of CSV may have line breaks in quotes, a header gives the order of the
              fields, and a field of JSON that is no column is refused

    Returns the warehouse's columns (of CSV that is not `lines` those of `columns`) and RECORD_COLUMNS, among
    them `_raw` (the text) and `_reason` (NULL if the record is accepted), as `stream.start` expects them.
    Raises InputError if the warehouse has no columns yet, or if `columns` does not match them.
    """
    from pyspark.sql import functions as F

    types = options.given_columns
    if not types:
        raise InputError("the warehouse has no columns yet. Create it with a schema, or load a batch first.")
    later = options.added_columns.keys() & types.keys()
    unknown = sorted((set(columns) ^ set(types)) - (later - set(columns))) if columns else []
    if unknown:
        raise InputError(f"columns must name each column of the warehouse once; {unknown} do not match.")
    fields = columns or [name for name in types if form == "json" or name not in later]
    known = arrow_schema_of(records.sparkSession, types.items())
    parser_columns = TextColumns(pa.schema([known.field(name) for name in fields]))
    named = [(name, types[name]) for name in (types if lines else fields)]
    marks = [name.removeprefix("_") for name in MARKS] if lines else _SOURCE_COLUMNS
    given = records.select(
        F.col("value").cast("binary").alias("_raw"),
        *(F.col(name).alias(f"_{name}") for name in marks),
    )
    # mapInArrow fails for names with a dot or a backquote: the columns are c0, c1, ... until then.
    numbered = [(f"c{i}", kind) for i, (_, kind) in enumerate(named)]
    kinds = {field.name: field.dataType.simpleString() for field in given.schema}
    told = [
        (name, kinds.get(name, "string"))
        for name in ("_raw", *(f"_{name}" for name in _SOURCE_COLUMNS), "_reason")
    ]
    texts = JsonRecords(parser_columns) if form == "json" else CsvRecords(parser_columns)
    of_files = FileRecords(form, parser_columns, known, frozenset(later))
    records_of = of_files if lines else _Texts(texts)
    rows = given.mapInArrow(records_of.parse, ddl([*numbered, *told]))
    place = {name: f"c{i}" for i, (name, _) in enumerate(named)}
    raw = F.col("_raw").cast("string").alias("_raw")
    return rows.select(
        *(F.col(place[name]).alias(name) for name in types if name in place),
        *(raw if name == "_raw" else F.col(name) for name in RECORD_COLUMNS),
    )


def read_lines(spark: SparkSession, path: str, form: str, max_files: int | None = None) -> DataFrame:
    """The lines of the files of a folder as a stream, `max_files` files a batch, for `parse`.

    Spark cuts no file of CSV whose name ends in the format: its records may go over lines.
    """
    from pyspark.sql import functions as F

    reader = spark.readStream.format("text").option("lineSep", "\n")
    if form == "csv":
        reader = reader.options(**_UNCUT)
    if max_files:
        reader = reader.option("maxFilesPerTrigger", max_files)
    end = F.col("_metadata.file_block_start") + F.col("_metadata.file_block_length")
    return reader.load(path).select(
        "value",
        F.col("_metadata.file_path").alias("position"),
        F.col("_metadata.file_block_start").alias("start"),
        (end >= F.col("_metadata.file_size")).alias("is_last"),
    )


@dataclass(frozen=True)
class _Texts:
    """Records of text, each in a row of its own."""

    parser: JsonRecords | CsvRecords

    def parse(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Parses the first column of batches: adds c0, c1, ... before them, and the reasons after."""
        for batch in batches:
            parsed = self.parser.parse(batch.column(0).cast(pa.binary()))
            reasons = pa.array(map(parsed.refused.get, range(len(batch))), pa.string())
            names = [*(f"c{i}" for i in range(parsed.rows.num_columns)), *batch.schema.names, "_reason"]
            yield pa.RecordBatch.from_arrays([*parsed.rows.columns, *batch.columns, reasons], names)
