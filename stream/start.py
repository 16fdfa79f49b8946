"""Appends a streaming DataFrame to a warehouse, batch by batch, until it is stopped."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, get_args

from tidemark.stream.append import append_batch, checked_source
from tidemark.stream.feeds import FeedCorrections, newest_correction
from tidemark.warehouse.columns.scalars import plain
from tidemark.warehouse.columns.ticks import parse_duration
from tidemark.warehouse.correct import Missing
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import InputError, name_text, shortened
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.execution.executors import Executor, executor_for
from tidemark.warehouse.execution.hadoop import check_checkpoint, report_checkpoint
from tidemark.warehouse.ingest import batch_numbers
from tidemark.warehouse.ingest.append_rows import Appended
from tidemark.warehouse.ingest.column_casts import check_columns
from tidemark.warehouse.ingest.private_rows import with_tokens
from tidemark.warehouse.ingest.rejected import RECORD_COLUMNS
from tidemark.warehouse.ingest.row_filter import DEFAULT_AHEAD, RowFilter, latest_time
from tidemark.warehouse.os_errors import in_home, report_os_errors
from tidemark.warehouse.removals.change_feed import check_feed
from tidemark.warehouse.settings.options import read_options
from tidemark.warehouse.sizes import Tuning

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

AVAILABLE_NOW = "available now"


@dataclass(frozen=True, slots=True)
class BatchReport:
    """The outcome of one batch: rows appended, rows rejected and seconds. A replay appends 0 rows.

    Of a change feed `rows` were added and `removed` were removed; a replay says the same. `nulls` counts the
    NULLs of each column that has any in the appended rows: the record lacked the column, or had null. It is
    empty for a batch whose rows were already stored before a crash.
    """

    source: str
    batch: int
    rows: int
    rejected: int
    seconds: float
    nulls: Mapping[str, int] = field(default_factory=dict)
    removed: int = 0


def start(  # noqa: PLR0913  a stream is named by its options, all by keyword
    streaming_df: DataFrame,
    uri: str | os.PathLike[str],
    *,
    source: str,
    checkpoint: str | os.PathLike[str],
    trigger: str | Mapping[str, Any] | None = None,
    ahead: str | timedelta | None = DEFAULT_AHEAD,
    max_rejected_fraction: float | None = None,
    evolve: bool = False,
    changes: bool = False,
    missing: Missing = "error",
    progress: Callable[[BatchReport], None] | None = None,
    storage_options: dict[str, str] | None = None,
    busy: threading.Lock | None = None,
    tuning: Tuning | None = None,
) -> StreamingQuery:
    """Starts the stream and returns Spark's StreamingQuery, to stop it or to wait for it.

    streaming_df  the warehouse's columns, in any order. It may have the three columns `_position`, `_raw` and
                  `_reason` (all or none), which stream/records.py makes: where the record is in the source,
                  its text, and the reason for which it is refused. A row with a reason goes to the table
                  `rejected`
    source        the unique name of the stream in the warehouse
    checkpoint    Spark's checkpoint folder, used by this stream only; keep it as long as the source's name.
                  Spark writes it through its own file systems: on an object store it needs s3a, or its like
    trigger       '10 seconds' between batches; 'available now' to process the available rows and end; or the
                  arguments of Spark's own trigger, {'processingTime': '10 seconds'}. By default a batch
                  starts when the last one has ended
    ahead         rows whose time is further ahead of the clock are rejected; None accepts all
    max_rejected_fraction
                  a batch with a larger share of rejected rows stops the stream and is not committed
    evolve        whether columns that the warehouse lacks are added to it by the first batch with rows, and
                  columns get the wider types of the rows, as `warehouse.load` does
    changes       whether the rows are changes: they have the column `_change_type` as well, as Delta's change
                  feed has it (`readChangeFeed`), or as `parse_changes` makes it. Each batch is then the
                  correction named `<source>/<number>`. A change that cannot be made stops the stream, and
                  nothing of its batch is done
    missing       for changes, as `warehouse.correct` takes it
    progress      called with a report after each batch, in the thread in which Spark runs the batch
    storage_options
                  as for `warehouse.load`
    busy          a lock that is held while a batch is processed; acquire it to stop between two batches
    tuning        sizes of blocks and tasks; None: the defaults of `warehouse.Tuning`

    A batch that Spark replays after a crash changes nothing. Raises InputError for bad arguments, for columns
    that do not fit, and if the checkpoint lacks batches that the warehouse has from this source.
    """
    with report_os_errors("stream"):
        spark = streaming_df.sparkSession
        store = Store.from_uri(uri, storage_options, tuning)
        name = checked_source(source)
        parser_columns = [column for column in RECORD_COLUMNS if column in streaming_df.columns]
        if not streaming_df.isStreaming:
            raise InputError(
                "stream.start takes a streaming DataFrame (spark.readStream); got a batch DataFrame."
            )
        if parser_columns and len(parser_columns) < len(RECORD_COLUMNS):
            raise InputError(
                f"expected all of the columns {', '.join(RECORD_COLUMNS)} or none, "
                f"got only {', '.join(parser_columns)}."
            )
        if max_rejected_fraction is not None and not 0 <= max_rejected_fraction <= 1:
            raise InputError(
                f"max_rejected_fraction must lie in [0, 1], got {shortened(max_rejected_fraction)}."
            )
        spark_trigger = _spark_trigger(trigger)
        ahead = plain(ahead)
        latest_time(ahead)  # raises for text that is no duration
        place = os.fspath(checkpoint) if isinstance(checkpoint, os.PathLike) else checkpoint
        checkpoint = in_home(name_text("checkpoint", place))
        check_checkpoint(spark, checkpoint)
        executor = executor_for(spark)
        options = read_options(store)
        executor.check_sendable(options.companions.known_kinds())
        fields = with_tokens(executor.input(streaming_df), options).fields(*parser_columns)
        how: _Appends | _Corrections
        _check_missing(missing, changes=changes)
        if changes:
            _check_changes(parser_columns, max_rejected_fraction, evolve=evolve)
            check_feed(fields, [column for column, _ in options.columns])
            how = _Corrections(FeedCorrections(spark, uri, name, missing, ahead, storage_options, tuning))
            newest = newest_correction(store, name)
        else:
            check_columns(options, fields, evolve=evolve)
            how = _Appends(executor, store, name, ahead, bool(parser_columns), max_rejected_fraction, evolve)
            newest = batch_numbers.newest(store, name)
        with report_checkpoint(checkpoint):
            check_numbering(spark, newest, name, checkpoint)
        lock = busy or threading.Lock()

        def process(rows: DataFrame, number: int) -> None:
            with lock:
                report = how.process(rows, number)
                if progress is not None:
                    progress(report)

        writer = streaming_df.writeStream.foreachBatch(process).option("checkpointLocation", checkpoint)
        with report_checkpoint(checkpoint):
            return (writer.trigger(**spark_trigger) if spark_trigger else writer).start()


@dataclass(frozen=True, slots=True)
class _Appends:
    """How the batches of a stream are appended; see `start`. `parsed`: the rows have RECORD_COLUMNS."""

    executor: Executor
    store: Store
    source: str
    ahead: str | timedelta | None
    parsed: bool
    max_rejected_fraction: float | None
    evolve: bool

    def process(self, rows: DataFrame, number: int) -> BatchReport:
        """Appends the batch with this number, once."""
        began = time.perf_counter()
        done = append_batch(
            self.executor,
            self.store,
            self.executor.input(rows),
            BatchRange(self.source, number, number),
            row_filter=RowFilter(latest_time(self.ahead), self.parsed),
            max_rejected_fraction=self.max_rejected_fraction,
            evolve=self.evolve,
            same_records=True,  # `check_numbering` found the batch's offsets in the checkpoint
        ) or Appended("known")
        spent = time.perf_counter() - began
        return BatchReport(self.source, number, done.rows, done.rejected, spent, done.nulls)


@dataclass(frozen=True, slots=True)
class _Corrections:
    """How the batches of a change feed are processed."""

    feed: FeedCorrections

    def process(self, rows: DataFrame, number: int) -> BatchReport:
        """Makes the changes of the batch with this number, once."""
        done = self.feed.correct(rows, number)
        return BatchReport(self.feed.source, number, done.rows_in, 0, done.seconds, removed=done.rows)


def _check_missing(missing: str, *, changes: bool) -> None:
    if missing not in get_args(Missing) or (missing != "error" and not changes):
        raise InputError(f"missing must be 'error', or 'insert' with changes=True, got {shortened(missing)}.")


def _check_changes(records: list[str], fraction: float | None, *, evolve: bool) -> None:
    """InputError for arguments that go with rows and not with changes."""
    if records or fraction is not None or evolve:
        raise InputError(
            "changes are all made, or the stream stops: leave out max_rejected_fraction and evolve. Parse "
            "text records by stream.parse_changes."
        )


def _spark_trigger(trigger: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """The keyword arguments of Spark's trigger; empty for its default."""
    if trigger is None or isinstance(trigger, Mapping):
        return dict(trigger or {})
    if trigger == AVAILABLE_NOW:
        return {"availableNow": True}
    return {"processingTime": f"{parse_duration(trigger) // 1000} milliseconds"}


def check_numbering(spark: SparkSession, stored: int, source: str, checkpoint: str) -> None:
    """InputError if the checkpoint lacks a batch of the source that the warehouse has, up to `stored`.

    Spark writes the offsets of a batch to the checkpoint before the batch runs, so the right checkpoint has
    every batch that the warehouse has. A new or an older checkpoint would give the same numbers to other
    rows, which would then be taken for replays and lost.
    """
    recorded = newest_offset(spark, checkpoint)
    if stored > recorded:
        state = "is new" if recorded < 0 else f"ends with batch {recorded}"
        raise InputError(
            f"the warehouse has batches of {source!r} up to {stored}, the checkpoint {checkpoint} {state}: "
            "numbers would be given twice, and the new rows be taken for replays. Restore the checkpoint; or "
            f"go on under another source name ({source}-2, say) from the offsets where {source!r} ended."
        )


def newest_offset(spark: SparkSession, checkpoint: str) -> int:
    """The number of the newest batch whose offsets are in the checkpoint; -1 if there is none."""
    jvm: Any = spark._jvm  # noqa: SLF001  Hadoop's file system is not in the Python API
    folder = jvm.org.apache.hadoop.fs.Path(checkpoint, "offsets")
    system = folder.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())  # noqa: SLF001
    if not system.exists(folder):
        return -1
    names = [status.getPath().getName() for status in system.listStatus(folder)]
    return max((int(name) for name in names if name.isdigit()), default=-1)
