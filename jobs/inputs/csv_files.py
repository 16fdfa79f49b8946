"""CSV files without Spark: accepts only what Spark's reader would read as the same values.

The first line of each file is the header; all files have the same columns in the same order. A field is the
text between two separators, or text in quotes. Quoted text must not contain a quote, a backslash or a line
break: Spark's reader has its own rules for these. An empty field is NULL. jobs/inputs/text_columns.py parses
the text of a field by the type of its column.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv

from tidemark.jobs.inputs.text_columns import BadValue, is_text_type, parse_column
from tidemark.jobs.inputs.text_files import Block, read_blocks
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.execution.arrow_inputs import ArrowRows
from tidemark.warehouse.sizes import DEFAULT

_BLANK_LINE = re.compile(rb"(?m)^[\x00-\x09\x0b\x0c\x0e-\x20]+\r?$")


def csv_rows(paths: list[Path], separator: str, types: pa.Schema) -> ArrowRows:
    """The rows of the files, one column per field of the header.

    A column that is missing in `types` is text. Raises InputError for a bad header, and while the rows are
    read for a field that does not parse.
    """
    header = _header(paths[0], separator)
    for path in paths[1:]:
        if (other := _header(path, separator)) != header:
            raise InputError(
                f"the header of {path} is {other}, the header of {paths[0]} is {header}. All files of one "
                "input need the same columns in the same order: rewrite them, or load them one by one."
            )
    duplicate = next((name for name in header if header.count(name) > 1), None)
    if duplicate is not None:
        raise InputError(f"the column {duplicate!r} is there twice in the header of {paths[0]}. Rename it.")
    known_types = {field.name: field.type for field in types}
    schema = pa.schema([(name, known_types.get(name, pa.string())) for name in header])
    for field in schema:
        if not is_text_type(field.type):
            raise InputError(
                f"column {field.name!r} is of type {field.type}, which a CSV field cannot hold. Use "
                "Parquet or JSON."
            )

    def read() -> Iterator[pa.RecordBatch]:
        for path in paths:
            for block in read_blocks(path):
                for batch in _split_fields(block, header, separator):
                    yield _parse_fields(block, batch, schema)

    return ArrowRows(schema, read)


def _header(path: Path, separator: str) -> list[str]:
    block = next(read_blocks(path), None)
    line = block.text.splitlines()[0] if block is not None else b""
    try:
        names = next(csv.reader([line.decode("utf-8-sig")], delimiter=separator, strict=True), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"the header of {path} cannot be read: {error}. Expected column names.") from error
    if not any(names):
        raise InputError(f"{path} has no header line. Expected a first line with the column names.")
    return names


def _split_fields(block: Block, header: list[str], separator: str) -> Iterator[pa.RecordBatch]:
    """The fields of the block as text columns, without the header line."""
    _check_form(block, separator)
    text = block.text
    if block.first == 1:
        line = text.splitlines(keepends=True)[0]
        text = text[len(line) :]
    if not text.strip(b"\r\n"):
        return
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(text),
            pa_csv.ReadOptions(column_names=header, block_size=max(len(text), 1), use_threads=False),
            pa_csv.ParseOptions(delimiter=separator, newlines_in_values=False),
            pa_csv.ConvertOptions(
                column_types=dict.fromkeys(header, pa.string()), strings_can_be_null=True, null_values=[""]
            ),
        )
    except pa.ArrowInvalid as error:
        raise block.refuse(0, f"in the lines from there on, {error}") from error
    yield from table.to_batches(max_chunksize=DEFAULT.batch_rows)


def _check_form(block: Block, separator: str) -> None:
    """InputError for quotes and blank lines that Spark's reader would read differently."""
    if b'"' in block.text:
        delimiter = re.escape(separator.encode())
        field = rb'(?:[^"%b]*|"[^"\\]*")' % delimiter
        record = re.compile(rb"%b(?:%b%b)*" % (field, delimiter, field))
        for number, line in enumerate(block.text.splitlines()):
            if b'"' in line and not record.fullmatch(line):
                raise block.refuse(
                    number, "a quote or a backslash inside quotes, or a quote inside an unquoted field"
                )
    blank = _BLANK_LINE.search(block.text)
    if blank is not None:
        raise block.refuse(block.text.count(b"\n", 0, blank.start()), "a line of white space only")


def _parse_fields(block: Block, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        try:
            columns.append(parse_column(column, field.type))
        except BadValue as error:
            raise InputError(
                f"cannot read the input {block.path}: {field.name} is not of type {field.type}: "
                f"{str(error)[:200]!r}, in the lines from {block.first} on. Nothing was changed. Correct the "
                "field; or omit --engine local: Spark accepts more text formats."
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)
