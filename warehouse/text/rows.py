"""The rows of text files, in this process.

The first record that is refused, in the order of the files, is an InputError with its line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.warehouse.errors import InputError
from tidemark.warehouse.execution.arrow_inputs import ArrowRows
from tidemark.warehouse.sizes import DEFAULT
from tidemark.warehouse.text.csv_records import CsvRecords, record_ends, split_record
from tidemark.warehouse.text.files import Block, blocks, line_ends, read_chunks
from tidemark.warehouse.text.json_records import JsonRecords, decoded_objects
from tidemark.warehouse.text.records import RecordParser, Refused, TextColumns

SEPARATORS = {"csv": ",", "tsv": "\t"}  # the separator of fields by format; JSON has none
_JSON_ROWS = 2**13  # objects that are in memory at a time
_OTHER_SEPARATORS = ";\t|,"


def text_rows(paths: list[Path], form: str, types: pa.Schema) -> ArrowRows:
    """The rows of the files of one format (csv, tsv, json); `types` are the types of the known columns.

    CSV has the columns of its header, the same in all files. JSON has the known columns that one of its
    records has at least. Raises InputError for a header that does not fit, and, while the rows are read, for
    a record that is refused.
    """
    if form in SEPARATORS:
        return _rows(paths, form, _csv_schema(paths, form, types))
    rows = _rows(paths, form, types)
    missing = _never_there(paths, types.names)
    for _ in rows.read() if missing else ():
        pass  # a record that is refused says more than a column that is missing
    seen = pa.schema([field for field in types if field.name not in missing])
    return _rows(paths, form, seen) if missing else rows


def _rows(paths: list[Path], form: str, schema: pa.Schema) -> ArrowRows:
    columns = TextColumns(schema)
    parser = record_parser(form, columns)

    def read() -> Iterator[pa.RecordBatch]:
        for path in paths:
            for block in file_blocks(str(path), read_chunks(path), form, columns):
                yield from block_rows(block, parser)

    return ArrowRows(schema, read)


def record_parser(form: str, columns: TextColumns) -> RecordParser:
    """The parser of a file's records."""
    if form in SEPARATORS:
        return CsvRecords(columns, SEPARATORS[form])
    return JsonRecords(columns, others=False)


def file_blocks(path: str, chunks: Iterable[bytes], form: str, columns: TextColumns) -> Iterator[Block]:
    """The blocks of a file's records from its first line on, without the header, which must fit."""
    is_csv = form in SEPARATORS
    found = blocks(path, chunks, record_ends if is_csv else line_ends)
    if not is_csv:
        yield from found
        return
    first = next(found, None)
    _check_header(path, _header(path, first, form), columns.schema.names)
    if first is not None:
        yield Block(path, first.line(1), first.records[1:])
    yield from found


def block_rows(block: Block, parser: RecordParser) -> Iterator[pa.RecordBatch]:
    """The rows of a block, in batches; empty lines are left out. InputError for the first that is refused."""
    is_csv = isinstance(parser, CsvRecords)
    size, empty = (DEFAULT.batch_rows, r"^\r?\n\z") if is_csv else (_JSON_ROWS, r"^[ \t\r\n]*\z")
    for start in range(0, len(block.records), size):
        records = block.records[start : start + size]
        kept = pc.invert(pc.match_substring_regex(records, empty))
        parsed = parser.parse(records if pc.all(kept).as_py() else records.filter(kept))
        if parsed.refused:
            row = min(parsed.refused)
            place = pc.indices_nonzero(kept)[row].as_py()
            raise block.refuse(start + place, parsed.refused[row])
        yield parsed.rows


def _csv_schema(paths: list[Path], form: str, types: pa.Schema) -> pa.Schema:
    path = paths[0]
    names = _header(str(path), next(blocks(str(path), read_chunks(path), record_ends), None), form)
    other = next((mark for mark in _OTHER_SEPARATORS if mark in names[0]), None)
    if len(names) == 1 and other is not None and names[0] not in types.names:
        raise InputError(
            f"the header of {path} is one column, {names[0]!r}: its fields seem to be separated by "
            f"{other!r}, expected {SEPARATORS[form]!r}. Write the file with commas, or with tabs as tsv."
        )
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise InputError(f"the column {duplicate!r} is there twice in the header of {path}. Rename it.")
    return pa.schema([(name, _known(types, name)) for name in names])


def _known(types: pa.Schema, name: str) -> pa.DataType:
    return types.field(name).type if name in types.names else pa.string()


def _header(path: str, first: Block | None, form: str) -> list[str]:
    """The names of the columns, in the first record of a file."""
    separator = SEPARATORS[form]
    try:
        names = split_record(first.records[0].as_py(), separator) if first is not None else []
    except Refused as error:
        raise InputError(f"the header of {path} cannot be read: {error}. Expected column names.") from None
    if not any(names):
        raise InputError(f"{path} has no header line. Expected a first line with the column names.")
    return names


def _check_header(path: str, header: list[str], names: list[str]) -> None:
    if header != names:
        raise InputError(
            f"the header of {path} is {header}, expected {names}. All files of one input need the same "
            "columns in the same order: rewrite them, or load them one by one."
        )


def _never_there(paths: list[Path], names: list[str]) -> set[str]:
    """The names that no JSON object of the files has; reading stops where all of them were seen."""
    missing = set(names)
    for block in chain.from_iterable(blocks(str(path), read_chunks(path), line_ends) for path in paths):
        for start in range(0, len(block.records), _JSON_ROWS):
            if not missing:
                return missing
            for record in decoded_objects(block.records[start : start + _JSON_ROWS]):
                missing.difference_update(record or ())
    return missing
