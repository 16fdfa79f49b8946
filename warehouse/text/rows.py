"""The rows of text files, in this process.

The first record that is refused, in the order of the files, is an InputError with its line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidemark.warehouse.columns.value_encoding import as_numpy_bools
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.execution.arrow_inputs import ArrowRows
from tidemark.warehouse.sizes import DEFAULT
from tidemark.warehouse.text.csv_records import CsvRecords, split_record
from tidemark.warehouse.text.files import Block, blocks, read_chunks
from tidemark.warehouse.text.json_records import JsonRecords, decoded_objects
from tidemark.warehouse.text.records import Parsed, TextColumns

TEXT_FORMATS = ("csv", "tsv", "json")
SEPARATORS = {"csv": ",", "tsv": "\t"}  # the separator of fields by format; JSON has none
RecordParser: TypeAlias = CsvRecords | JsonRecords
_JSON_ROWS = 2**13  # objects that are in memory at a time
_NO_HEADER = "has no header line. Expected a first line with the column names."
_OTHER_SEPARATORS = ";\t|,"


def text_rows(paths: list[Path], form: str, types: pa.Schema) -> ArrowRows:
    """The rows of the files of one format (csv, tsv, json); `types` are the types of the known columns.

    CSV has the columns of its header, the same in all files. JSON has the known columns that one of its
    records has at least. Raises InputError for a header that does not fit, and, while the rows are read, for
    a record that is refused.
    """
    if form in SEPARATORS:
        return _rows(paths, form, csv_schema(str(paths[0]), read_chunks(paths[0]), form, types))
    rows = _rows(paths, form, types)
    missing = _never_there(paths, types.names)
    for _ in rows.read() if missing else ():
        pass  # a record that is refused says more than a column that is missing
    seen = pa.schema([field for field in types if field.name not in missing])
    return _rows(paths, form, seen) if missing else rows


def _rows(paths: list[Path], form: str, schema: pa.Schema) -> ArrowRows:
    columns = TextColumns(schema)
    chosen_parser(form, columns)  # it refuses columns that the form cannot hold
    return _TextRows(schema, paths, form, columns)


@dataclass(frozen=True, slots=True)
class _TextRows(ArrowRows):
    schema: pa.Schema
    paths: list[Path]
    form: str
    columns: TextColumns

    def read(self) -> Iterator[pa.RecordBatch]:
        for path in self.paths:
            yield from part_rows(str(path), read_chunks(path), self.form, self.columns)


def chosen_parser(form: str, columns: TextColumns) -> RecordParser:
    """The parser of the records of files."""
    if form in SEPARATORS:
        return CsvRecords(columns, SEPARATORS[form])
    return JsonRecords(columns, others=False)


def part_rows(
    path: str, chunks: Iterable[bytes], form: str, columns: TextColumns, first: int = 1
) -> Iterator[pa.RecordBatch]:
    """The rows of the text that the chunks make together: a file, or a part that begins at line `first`.

    InputError for the first record that is refused. A header must have the names of the columns.
    """
    parser = chosen_parser(form, columns)
    is_empty = first == 1 and form in SEPARATORS
    for block in blocks(path, chunks, form, first):
        is_empty = False
        records = _without_header(block, form, columns) if block.first == 1 else block
        for some in parsed_records(records, parser):
            if some.parsed.refused:
                row = min(some.parsed.refused)
                raise records.refuse(some.places[row], columns.told(some.parsed.refused[row]))
            yield some.parsed.rows
    if is_empty:
        raise InputError(f"{path} {_NO_HEADER}")


def _without_header(block: Block, form: str, columns: TextColumns) -> Block:
    if form not in SEPARATORS:
        return block
    names = header(block, form)
    if names != columns.schema.names:
        _check_hidden(columns, names, block.path)
        raise InputError(
            f"the header of {block.path} is {names}, expected {columns.schema.names}. All files of one input "
            "need the same columns in the same order: rewrite them, or load them one by one."
        )
    return block.after(first_record(block))


@dataclass(frozen=True, slots=True)
class ParsedRecords:
    """Some records of a block as rows: `places` are their numbers in the block."""

    places: NDArray[np.int64]
    records: pa.Array
    parsed: Parsed


def parsed_records(block: Block, parser: RecordParser) -> Iterator[ParsedRecords]:
    """The records of a block as rows, in batches; empty lines are left out."""
    size, form = (DEFAULT.batch_rows, "csv") if isinstance(parser, CsvRecords) else (_JSON_ROWS, "json")
    for start in range(0, len(block.records), size):
        records = block.records[start : start + size]
        empty = _are_empty(records, form)
        places = np.arange(start, start + len(records))
        if pc.any(empty).as_py():
            places, records = places[~as_numpy_bools(empty)], records.filter(pc.invert(empty))
        yield ParsedRecords(places, records, parser.parse(records))


def first_record(block: Block) -> int:
    """The first record of a block that is no empty line; 0 if there is none."""
    return next((row for row, record in enumerate(block.records) if record.as_py().strip(b"\r\n")), 0)


def _are_empty(records: pa.Array, form: str) -> pa.Array:
    """Which records of files are lines without anything, or in JSON with white space only."""
    return pc.match_substring_regex(records, r"^\r?\n?\z" if form in SEPARATORS else r"^[ \t\r\n]*\z")


def csv_schema(path: str, chunks: Iterable[bytes], form: str, types: pa.Schema) -> pa.Schema:
    """The columns of the header, the first record of the text: text, where `types` has no type."""
    first = next(blocks(path, chunks, form), None)
    if first is None:
        raise InputError(f"{path} {_NO_HEADER}")
    names = header(first, form)
    _check_hidden(TextColumns(types), names, path)
    other = next((mark for mark in _OTHER_SEPARATORS if mark in names[0]), None)
    if len(names) == 1 and other is not None and names[0] not in types.names:
        raise InputError(
            f"the header of {path} is one column, {names[0]!r}: its fields seem to be separated by "
            f"{other!r}, expected {SEPARATORS[form]!r}. Write the file with commas, or with tabs as tsv."
        )
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise InputError(f"the column {duplicate!r} is there twice in the header of {path}. Rename it.")
    known = set(types.names)
    return pa.schema([types.field(name) if name in known else (name, pa.string()) for name in names])


def _check_hidden(known: TextColumns, names: list[str], path: str) -> None:
    """InputError for a header with other names than those of the columns, if a column is hidden.

    A file without a header has a record in its place.
    """
    if known.is_hidden and not set(names) <= set(known.schema.names):
        raise InputError(
            f"the first line of {path} is no header of columns of the warehouse: "
            f"{', '.join(known.schema.names)}. It is not shown, because there are private columns."
        )


def header(first: Block, form: str) -> list[str]:
    """The names of the columns, in the first record of a file."""
    names, fault = split_record(first.records[first_record(first)].as_py(), SEPARATORS[form])
    if fault:
        raise InputError(f"the header of {first.path} cannot be read: {fault}. Expected column names.")
    if not any(names):
        raise InputError(f"{first.path} {_NO_HEADER}")
    return names


def _never_there(paths: list[Path], names: list[str]) -> set[str]:
    """The names that no JSON object of the files has; reading stops where all of them were seen."""
    missing = set(names)
    for block in chain.from_iterable(blocks(str(path), read_chunks(path), "json") for path in paths):
        for start in range(0, len(block.records), _JSON_ROWS):
            if not missing:
                return missing
            for record in decoded_objects(block.records[start : start + _JSON_ROWS]):
                missing.difference_update(record or ())
    return missing
