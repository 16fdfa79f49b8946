"""A streaming DataFrame into the live ledger, batch after batch, until it is stopped."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tidemark.stream.append import append_batch, checked_source
from tidemark.warehouse.columns.ticks import parse_duration
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import InputError, TooManyRejected
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.execution.executors import executor_for
from tidemark.warehouse.ingest import append_rows, batch_numbers
from tidemark.warehouse.ingest.append_rows import TOLD, Appended
from tidemark.warehouse.ingest.row_filter import Sieve
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.settings.options import read_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

DEFAULT_AHEAD = "1 day"  # how far ahead of the clock an event's time may lie
AVAILABLE_NOW = "available now"


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What became of one batch: rows taken and refused, and its seconds. A replay has taken none.

    `nulls` says of the columns that are NULL in some of the rows taken in how many: their records lacked the
    column, or had null. It is empty for a batch whose rows were there since a crash.
    """

    source: str
    batch: int
    rows: int
    rejected: int
    seconds: float
    nulls: Mapping[str, int] = field(default_factory=dict)


@report_os_errors("stream")
def start(  # noqa: PLR0913  a stream is named by its options, all by keyword
    streaming_df: DataFrame,
    uri: str | os.PathLike[str],
    *,
    source: str,
    checkpoint: str | os.PathLike[str],
    trigger: str | Mapping[str, Any] | None = None,
    ahead: str | timedelta | None = DEFAULT_AHEAD,
    max_rejected_fraction: float | None = None,
    progress: Callable[[BatchReport], None] | None = None,
    storage_options: dict[str, str] | None = None,
    busy: threading.Lock | None = None,
) -> StreamingQuery:
    """Starts the stream and returns Spark's query: stop it, or await it, as any other.

    streaming_df  the warehouse's columns, in any order. Columns `_position`, `_raw` and `_reason`, all
                  three or none, tell of the records that they were parsed from: a row with a reason
                  goes to the table `rejected` (stream/records.py makes them)
    source        the stream's own name in the warehouse; several streams have several names
    checkpoint    Spark's folder for this stream, of its own and kept as long as the source's name is
    trigger       '10 seconds' between batches, 'available now' to take what is there and end, or what Spark's
                  own trigger takes, {'processingTime': '10 seconds'}; without it the next batch starts when
                  the last has ended
    ahead         rows whose time is further ahead of the clock are rejected; None takes any
    max_rejected_fraction
                  a batch with more than this share of rejected rows stops the stream, uncommitted
    progress      called after each batch
    busy          held while a batch is in work, for whoever wants to stop between two

    A batch that Spark replays after a crash changes nothing. Raises InputError where the checkpoint does
    not know batches that the warehouse has from this source.
    """
    spark = streaming_df.sparkSession
    store = Store.from_uri(uri, storage_options)
    name = checked_source(source)
    told = [column for column in TOLD if column in streaming_df.columns]
    if not streaming_df.isStreaming:
        raise InputError("stream.start takes a streaming DataFrame (spark.readStream); got one that is not.")
    if told and len(told) < len(TOLD):
        raise InputError(f"of the columns {', '.join(TOLD)} only {', '.join(told)} came. Bring all or none.")
    if max_rejected_fraction is not None and not 0 <= max_rejected_fraction <= 1:
        raise InputError(f"max_rejected_fraction must lie in [0, 1], got {max_rejected_fraction!r}.")
    when = _spark_trigger(trigger)
    ahead_us = None if ahead is None else parse_duration(ahead)
    executor = executor_for(spark)
    append_rows.check_rows(read_options(store), executor.input(streaming_df), Sieve(reasons=bool(told)))
    check_numbering(spark, store, name, os.fspath(checkpoint))
    gate = busy or threading.Lock()

    def take(rows: DataFrame, number: int) -> None:
        with gate:
            began = time.perf_counter()
            latest = None if ahead_us is None else int(time.time() * 1e6) + ahead_us
            done = append_batch(
                executor,
                store,
                executor.input(rows),
                BatchRange(name, number, number),
                sieve=Sieve(latest, bool(told)),
                check=lambda done: _check_fraction(done, max_rejected_fraction, name, number),
            )
            if progress is not None:
                done = done or Appended("known")
                spent = time.perf_counter() - began
                progress(BatchReport(name, number, done.rows, done.rejected, spent, done.nulls))

    writer = streaming_df.writeStream.foreachBatch(take).option("checkpointLocation", os.fspath(checkpoint))
    return (writer.trigger(**when) if when else writer).start()


def _spark_trigger(trigger: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """The trigger by Spark's own names; empty for its default."""
    if trigger is None or isinstance(trigger, Mapping):
        return dict(trigger or {})
    if trigger == AVAILABLE_NOW:
        return {"availableNow": True}
    return {"processingTime": f"{parse_duration(trigger) // 1000} milliseconds"}


def _check_fraction(done: Appended, most: float | None, source: str, batch: int) -> None:
    came = done.rows + done.rejected
    if most is not None and came and done.rejected > most * came:
        raise TooManyRejected(
            f"batch {batch} of {source!r}: {done.rejected} of {came} records cannot be taken, more than the "
            f"fraction {most} that is allowed. Nothing of the batch was committed. Mend the source or the "
            "format and start again, or allow more (max_rejected_fraction)."
        )


def check_numbering(spark: SparkSession, store: Store, source: str, checkpoint: str) -> None:
    """The checkpoint goes on where the source's batches in the warehouse end; InputError otherwise.

    Spark writes a batch's offsets down before the batch runs, so a checkpoint that was kept knows
    every batch that the warehouse has. One that is new, or older, would give their numbers to other
    rows, and these would be taken for replays.
    """
    there = batch_numbers.newest(store, source)
    known = newest_offset(spark, checkpoint)
    if there > known:
        knows = "is new" if known < 0 else f"ends with batch {known}"
        raise InputError(
            f"the warehouse has batches of {source!r} up to {there}, the checkpoint {checkpoint} {knows}: "
            "numbers would be given twice, and the new rows be taken for replays. Restore the checkpoint; or "
            f"go on under another source name ({source}-2, say) from the offsets where {source!r} ended."
        )


def newest_offset(spark: SparkSession, checkpoint: str) -> int:
    """The newest batch that the checkpoint has offsets of; -1 where there is none."""
    jvm: Any = spark._jvm  # noqa: SLF001  Hadoop's file system is not in the Python API
    folder = jvm.org.apache.hadoop.fs.Path(checkpoint, "offsets")
    system = folder.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())  # noqa: SLF001
    if not system.exists(folder):
        return -1
    names = [status.getPath().getName() for status in system.listStatus(folder)]
    return max((int(name) for name in names if name.isdigit()), default=-1)
