"""CSV and JSON files with Spark: it brings their lines, and its tasks parse them with the one strict reader.

Spark may cut a large file into parts, each for a task. A task parses the lines of a part in their order. It
must know the number of its first line, and that no record goes on from the part before: both are found first,
if a file has more than one part. Files with a line break in quotes at such a cut are sorted together again.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemark.warehouse.columns.schema import column_types, ddl, delta_fields
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.execution.executors import raise_task_errors
from tidemark.warehouse.text.guessed_types import Guesses, Wanted, check_guessed, guess_part
from tidemark.warehouse.text.json_records import decoded_objects
from tidemark.warehouse.text.parts import Chunks, Part, by_part
from tidemark.warehouse.text.records import TextColumns
from tidemark.warehouse.text.rows import SEPARATORS, csv_schema, part_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILE = re.compile("^file:/+")  # Java writes one slash or three
_HEADER_LINES = 100  # at most, where names of columns have line breaks
_FIRST_LINES = 1000  # in which nearly always each field of JSON was there once


@dataclass(frozen=True, slots=True)
class Parts:
    """Facts about files for tasks. A part is the address of a file and the byte where the part begins.

    form    csv, tsv or json
    paths   the paths of the files by their addresses, in their order
    firsts  the number of the first line of each part that does not begin a file, counted from 1
    """

    form: str
    paths: dict[str, str]
    firsts: dict[Part, int]

    def rows(self, part: Part, chunks: Chunks, columns: TextColumns) -> Iterator[pa.RecordBatch]:
        """The rows of a part; InputError for the first record that is refused."""
        return part_rows(self.paths[part[0]], chunks, self.form, columns, self.firsts.get(part, 1))


@dataclass(frozen=True, slots=True)
class SparkText:
    """Text files; `lines` has the columns value (the bytes of a line without its LF), url and start.

    A url is as Spark writes it, see `_address`: a computation for each line in Java would take as long as
    the reading of the line.
    """

    lines: DataFrame
    parts: Parts

    def schema(self, types: pa.Schema) -> pa.Schema:
        """The columns of the rows; `types` are the types of the known columns: see `text_rows`."""
        if self.parts.form in SEPARATORS:
            from pyspark.sql import functions as F

            url, path = next(iter(self.parts.paths.items()))
            is_first = F.regexp_replace("url", _FILE.pattern, "file:/") == url
            lines = self.lines.where(is_first).select("value").head(_HEADER_LINES)
            return csv_schema(path, [bytes(line.value) + b"\n" for line in lines], self.parts.form, types)
        missing = self._never_there(types.names)
        if missing:
            self.check(types)
        return pa.schema([field for field in types if field.name not in missing])

    def rows(self, schema: pa.Schema) -> DataFrame:
        """The rows; its tasks raise InputError for a record that is refused."""
        parts, columns = self.parts, TextColumns(schema)
        names = [f"c{i}" for i in range(len(schema))]  # mapInArrow fails for a dot or a backquote

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for part, chunks in _by_part(batches):
                for rows in parts.rows(part, chunks, columns):
                    yield pa.RecordBatch.from_arrays(rows.columns, names)

        types = column_types(delta_fields(schema)).values()
        return self.lines.mapInArrow(work, ddl(zip(names, types, strict=True))).toDF(*schema.names)

    def check(self, schema: pa.Schema) -> None:
        """Reads all rows; InputError for the first record that is refused, in the order of the files."""
        parts, columns = self.parts, TextColumns(schema)

        def first_refusal(part: Part, chunks: Chunks) -> InputError | None:
            try:
                for _ in parts.rows(part, chunks, columns):
                    pass
            except InputError as error:
                return error
            return None

        for error in self._collect(first_refusal):
            if error is not None:
                raise error

    def guess(self, wanted: Wanted, stored: pa.Schema | None = None) -> pa.Schema:
        """The types of the columns of a batch that creates a warehouse, or adds columns: `guess_types`."""
        check_guessed(stored)
        parts, columns, guesses = self.parts, None, Guesses()
        if parts.form in SEPARATORS:
            columns = TextColumns(self.schema(pa.schema([])))

        def guess(part: Part, chunks: Chunks) -> Guesses:
            return guess_part(parts.paths[part[0]], chunks, parts.form, columns, parts.firsts.get(part, 1))

        try:
            for found in self._collect(guess):
                guesses.merge(found)
        except InputError:
            if columns is not None:
                self.check(columns.schema)
            raise
        return guesses.choose(wanted, pa.schema([]) if stored is None else stored)

    def _never_there(self, names: Sequence[str]) -> set[str]:
        """The names that no JSON object of the files has."""
        first = [bytes(line.value) for line in self.lines.select("value").head(_FIRST_LINES)]
        missing = set(names) - _names(pa.array(first, pa.binary()))
        if not missing:
            return missing
        for found in self._collect(lambda _, chunks: set().union(*map(_names_of_lines, chunks))):
            missing -= found
        return missing

    def _collect(self, work: Callable[[Part, Chunks], Any]) -> list[Any]:
        """The result of `work` for each part, in the order of the files."""

        def pickled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for part, chunks in _by_part(batches):
                result = pickle.dumps(work(part, chunks))
                yield pa.RecordBatch.from_pydict({"url": [part[0]], "start": [part[1]], "result": [result]})

        with raise_task_errors():
            rows = self.lines.mapInArrow(pickled, "url string, start bigint, result binary").collect()
        order = {url: number for number, url in enumerate(self.parts.paths)}
        rows.sort(key=lambda row: (order[row.url], row.start))
        return [pickle.loads(row.result) for row in rows]  # noqa: S301  our own tasks wrote it


def open_text(spark: SparkSession, paths: Sequence[str], form: str, *, private: bool = False) -> SparkText:
    """The text files at these paths, in this order; InputError for an empty one that needs a header.

    private   whether columns are private: then InputError for records that Spark would have to sort first
    """
    from pyspark.sql import functions as F

    reader = spark.read.format("text").option("lineSep", "\n")
    reader = reader.option("__globPaths__", False).option("recursiveFileLookup", True)  # as for Parquet
    lines = reader.load(list(paths)).select(
        F.col("value").cast("binary").alias("value"),
        F.col("_metadata.file_path").alias("url"),
        F.col("_metadata.file_block_start").alias("start"),
    )
    files = _files(spark, paths)
    for path, (_, size) in zip(paths, files, strict=True):
        if not size and form in SEPARATORS:
            csv_schema(path, [], form, pa.schema([]))
    by_url = {url: path for path, (url, _) in zip(paths, files, strict=True)}
    if max(size for _, size in files) <= _whole_bytes(spark) or not _cuts_a_file(lines):
        return SparkText(lines, Parts(form, by_url, {}))
    firsts, is_cut_inside = _count(lines, form)
    if not is_cut_inside:
        return SparkText(lines, Parts(form, by_url, firsts))
    if private:
        raise InputError(
            "a file is cut inside of quotes, so Spark would write its text to temporary files before the "
            "private columns have tokens. Give it in smaller files, or as Parquet, or use --engine local."
        )
    placed = lines.withColumn("row", F.monotonically_increasing_id()).repartition("url")
    ordered = placed.sortWithinPartitions("url", "start", "row")
    return SparkText(ordered.select("value", "url", F.lit(0).alias("start")), Parts(form, by_url, {}))


def _files(spark: SparkSession, paths: Sequence[str]) -> list[tuple[str, int]]:
    """The address of each file, as Spark's metadata has it, and its bytes."""
    java: Any = spark._jvm  # noqa: SLF001  Hadoop's file systems are not in the Python API
    conf = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001
    found = []
    for path in paths:
        place = java.org.apache.hadoop.fs.Path(path)
        status = place.getFileSystem(conf).getFileStatus(place)
        found.append((_address(status.getPath().toUri().toString()), int(status.getLen())))
    return found


def _address(url: str) -> str:
    """The address of a file, which Spark and Hadoop write with one slash or with three."""
    return _FILE.sub("file:/", url)


def _by_part(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Part, Chunks]]:
    """As `by_part`, for parts that are an address of a file and a byte."""
    for (url, start), chunks in by_part(batches):
        yield (_address(url), start), chunks


def _whole_bytes(spark: SparkSession) -> int:
    """The size up to which Spark never cuts a file."""
    conf = spark._jsparkSession.sessionState().conf()  # noqa: SLF001
    return min(int(conf.filesMaxPartitionBytes()), int(conf.filesOpenCostInBytes()))


def _cuts_a_file(lines: DataFrame) -> bool:
    """Whether a task of this plan begins inside a file; the plan tells it, and no file is read."""
    plan: Any = lines._jdf.queryExecution().toRdd()  # noqa: SLF001  parts are not in the Python API
    return any(file.start() for task in plan.partitions() for file in task.files())


def _count(lines: DataFrame, form: str) -> tuple[dict[Part, int], bool]:
    """The number of the first line of each part, and whether a part begins inside quotes."""
    from pyspark.sql import functions as F

    quotes = F.lit(0)
    if form in SEPARATORS:
        value = F.col("value").cast("string")
        quotes = F.octet_length(value) - F.octet_length(F.replace(value, F.lit('"'), F.lit("")))
    counted = lines.groupBy("url", "start").agg(F.count("*").alias("lines"), F.sum(quotes).alias("quotes"))
    firsts: dict[Part, int] = {}
    inside = False
    for _, parts in groupby(sorted(counted.collect()), key=lambda row: row.url):
        line, seen = 1, 0
        for part in parts:
            firsts[_address(part.url), part.start] = line
            inside |= seen % 2 == 1
            line, seen = line + part.lines, seen + part.quotes
    return firsts, inside


def _names_of_lines(text: bytes) -> set[str]:
    return _names(pa.array(text.splitlines(), pa.binary()))


def _names(records: pa.Array) -> set[str]:
    return {name for record in decoded_objects(records) for name in record or ()}
