"""The records of a stream's files: each becomes a row, or is refused with a reason.

A file means what it means to a load (rows.py): its records are those of the format, line breaks in quotes and
all, and a field of JSON that is no column is refused. But a refused record does not refuse the others, and a
file of CSV may lack a header. The first record is a header if it has the name of a column, in any case. The
fields are then in its order; if it is no valid header, each record of the file is refused. A header may leave
out columns that were added to the warehouse later.

Spark may cut a large file into parts, one for each task; it does not cut files that are named *.csv. A task
knows nothing of the part before its own. So it reads each part as if it began with a new record. That is true
of the first part, and of any other one because a record that goes on into the next part is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidemark.warehouse.columns.arrow_types import with_columns_of
from tidemark.warehouse.columns.value_encoding import single_array
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.text.csv_records import split_record, without_line_ends
from tidemark.warehouse.text.files import Block, all_blocks
from tidemark.warehouse.text.parts import Chunks, by_part
from tidemark.warehouse.text.records import Parsed, TextColumns
from tidemark.warehouse.text.rows import (
    SEPARATORS,
    ParsedRecords,
    chosen_parser,
    first_record,
    parsed_records,
)

MARKS = ("_position", "_start", "_is_last")  # of a part: its file, its first byte, whether it ends the file


@dataclass(frozen=True, slots=True)
class FileRecords:
    """Reads files of a format.

    columns   the fields of CSV without a header, in their order
    known     all columns of the warehouse: those of the rows
    later     those of them that a file may lack; the rows have NULL there
    """

    form: str
    columns: TextColumns
    known: pa.Schema
    later: frozenset[str] = frozenset()

    def parse(self, lines: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows, in the order of `known` as c0, c1, ..., each with _raw, _position and _reason.

        lines   a line (bytes, without its LF), and the columns of MARKS

        _position also has the line of a record that is refused. InputError for a cut inside a record.
        """
        for (path, start, is_last), chunks in by_part(lines):
            begun = "" if start == 0 else f" from byte {start:,} on"
            for block, some in self._part(path, chunks, is_begin=start == 0, is_last=is_last):
                refused = some.parsed.refused
                line = block.lines()[some.places] if refused else ()
                places = [path] * len(some.records)
                for row in refused:
                    places[row] = f"{path}, line {line[row]}{begun}"
                rows = with_columns_of(self.known, pa.Table.from_batches([some.parsed.rows]))
                reasons = pa.array(map(refused.get, range(len(places))), pa.string())
                told = [without_line_ends(some.records), pa.array(places, pa.string()), reasons]
                names = [*(f"c{i}" for i in range(rows.num_columns)), "_raw", "_position", "_reason"]
                columns = [single_array(column) for column in rows.columns]
                yield pa.RecordBatch.from_arrays([*columns, *told], names)

    def _part(
        self, path: str, chunks: Chunks, *, is_begin: bool, is_last: bool
    ) -> Iterator[tuple[Block, ParsedRecords]]:
        """The records of a part of a file, as they are parsed."""
        columns = self.columns if self.form in SEPARATORS else TextColumns(self.known)
        faulty = ""
        block = None
        for number, block in enumerate(all_blocks(path, chunks, self.form, is_begin=is_begin)):
            records = block
            if is_begin and number == 0 and self.form in SEPARATORS and not block.unusable:
                columns, records, faulty = self._without_header(block)
            if reason := block.unusable or faulty:
                yield records, _all_refused(records, columns, reason)
                continue
            for some in parsed_records(records, chosen_parser(self.form, columns)):
                yield records, some
        if not is_last and block is not None and self._is_open(block):
            raise InputError(
                f"Spark cut the file {path} inside a record, which has a line break in quotes. Nothing of "
                f"the batch was committed. Give the file a name that ends in .{self.form}: it is not cut "
                "then. Or raise spark.sql.files.openCostInBytes above its size."
            )

    def _without_header(self, block: Block) -> tuple[TextColumns, Block, str]:
        """The columns of a file that begins with the block, its records, and why none of them can be read."""
        row = first_record(block)
        schema = self.known
        names, fault = split_record(block.records[row].as_py(), SEPARATORS[self.form])
        if fault or {name.lower() for name in names}.isdisjoint(name.lower() for name in schema.names):
            return self.columns, block, ""
        needed = set(schema.names) - self.later
        if len(set(names)) < len(names) or not needed <= set(names) <= set(schema.names):
            of = ", ".join(schema.names)
            return self.columns, block, f"the header {', '.join(names)} has not each of the columns {of} once"
        return TextColumns(pa.schema([schema.field(name) for name in names])), block.after(row), ""

    def _is_open(self, block: Block) -> bool:
        return self.form in SEPARATORS and block.records[-1].as_py().count(b'"') % 2 == 1


def _all_refused(block: Block, columns: TextColumns, reason: str) -> ParsedRecords:
    count = len(block.records)
    rows = pa.RecordBatch.from_arrays(
        [pa.nulls(count, field.type) for field in columns.schema], schema=columns.schema
    )
    return ParsedRecords(np.arange(count), block.records, Parsed(rows, dict.fromkeys(range(count), reason)))
