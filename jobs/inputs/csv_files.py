"""CSV files without Spark: the forms that mean the same to Spark's reader, and no others.

The first line of each file names the columns, in the same order in all of them. A field is as it stands
between two separators; or it is in quotes, and then it has neither a quote, a backslash nor a line break
inside, which Spark's reader takes in a way of its own. A field without text is NULL. What a text means in a
column of a type `textcolumns` tells.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv

from tidemark.jobs.inputs.text_columns import Unfit, is_text_type, typed
from tidemark.jobs.inputs.text_files import Block, blocks
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.execution.arrow_inputs import ArrowRows
from tidemark.warehouse.tuning import DEFAULT

_BLANK = re.compile(rb"(?m)^[\x00-\x09\x0b\x0c\x0e-\x20]+\r?$")


def csv_rows(paths: list[Path], separator: str, types: pa.Schema) -> ArrowRows:
    """The rows of the files; a column that is none of `types` is text. InputError for other forms."""
    header = _header(paths[0], separator)
    for path in paths[1:]:
        if (other := _header(path, separator)) != header:
            raise InputError(
                f"the header of {path} is {other}, that of {paths[0]} is {header}. One input's files have "
                "the same columns in the same order: write them alike, or load them as batches of their own."
            )
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"the column {twice!r} is there twice in the header of {paths[0]}. Rename it.")
    known = {field.name: field.type for field in types}
    schema = pa.schema([(name, known.get(name, pa.string())) for name in header])
    for field in schema:
        if not is_text_type(field.type):
            raise InputError(f"column {field.name!r} is {field.type}, which no field of CSV holds.")

    def read() -> Iterator[pa.RecordBatch]:
        for path in paths:
            for block in blocks(path):
                for batch in _parsed(block, header, separator):
                    yield _typed(block, batch, schema)

    return ArrowRows(schema, read)


def _header(path: Path, separator: str) -> list[str]:
    block = next(blocks(path), None)
    line = block.text.splitlines()[0] if block is not None else b""
    try:
        found = next(csv.reader([line.decode("utf-8-sig")], delimiter=separator, strict=True), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"the header of {path} cannot be read: {error}. Expected names of columns."
        ) from error
    if not any(found):
        raise InputError(f"{path} has no header line. Expected one that names the columns.")
    return found


def _parsed(block: Block, header: list[str], separator: str) -> Iterator[pa.RecordBatch]:
    """The block's fields as text; the header is left out."""
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
    """InputError where a quote or a line of white space means something else to Spark's reader."""
    if b'"' in block.text:
        other = re.escape(separator.encode())
        field = rb'(?:[^"%b]*|"[^"\\]*")' % other
        form = re.compile(rb"%b(?:%b%b)*" % (field, other, field))
        for number, line in enumerate(block.text.splitlines()):
            if b'"' in line and not form.fullmatch(line):
                raise block.refuse(
                    number, "a quote or a backslash inside of quotes, or a quote inside a field"
                )
    blank = _BLANK.search(block.text)
    if blank is not None:
        raise block.refuse(block.text.count(b"\n", 0, blank.start()), "a line of white space")


def _typed(block: Block, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        try:
            columns.append(typed(column, field.type))
        except Unfit as error:
            raise InputError(
                f"cannot read the input {block.path}: {field.name} is no {field.type}: {str(error)[:200]!r}, "
                f"in the lines from {block.first} on. Nothing was changed. Mend the field; or leave out "
                "--engine local: Spark reads more forms of text."
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)
