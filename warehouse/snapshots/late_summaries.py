"""Summaries of live batches for which the ledger has none: a reader makes them from the rows in `events`.

Either the batches came before a measure or key was declared; or a bulk load has committed their step to other
projections, but not yet to the one that is asked. The rows are summarised as a stream would have done it,
until a load moves the batches to history. Cost: one read of the columns in these rows, once per reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.events.reader import BatchRange, EventRowGroups, read_decoded_rows
from tidemark.warehouse.ledger import batch_counts
from tidemark.warehouse.ledger.batch_summaries import TickSummarizer, TickSummary, by_tick
from tidemark.warehouse.ledger.ledger_table import level_eps
from tidemark.warehouse.ledger.live_summaries import LiveKeys, LiveRow, summarised_keys
from tidemark.warehouse.projections.key_counts import KeyCounts
from tidemark.warehouse.settings.options import Options


def late_keys(
    store: Store,
    options: Options,
    counts: KeyCounts,
    batches: BatchRange,
    rows: Mapping[int, int] | int,
    files: Sequence[DataFile],
) -> list[LiveKeys]:
    """The live keys of a range, one per tick, from the files of `events` that may have its rows.

    rows   the number of rows of the range, or the numbers by tick

    DamagedWarehouse if `events` has other numbers of rows.
    """
    alone = replace(_without_columns(options), own_keys=(counts.key.columns,))
    found = _summaries(store, alone, options.eps, batches, rows, files)
    return [summarised_keys(store, summary, batches, counts.ledger_field) for summary in found]


def late_rows(
    store: Store,
    options: Options,
    measure: Measure,
    batches: BatchRange,
    rows: Mapping[int, int] | int,
    files: Sequence[DataFile],
) -> list[LiveRow]:
    """As `late_keys`, for a measure."""
    alone = replace(_without_columns(options), measure_names=(measure.name,))
    live = []
    for summary in _summaries(store, alone, level_eps(options.eps, 0), batches, rows, files):
        (of_measure,) = summary.measures
        counts = summary.rows, of_measure.nans, of_measure.nulls
        live.append(LiveRow(batches, summary.tick, *counts, of_measure.sketch))
    return live


def _without_columns(options: Options) -> Options:
    return replace(options, measure_names=(), own_keys=(), group_names=(), companion_names=(), built_from={})


def _summaries(
    store: Store,
    options: Options,
    eps: float,
    batches: BatchRange,
    rows: Mapping[int, int] | int,
    files: Sequence[DataFile],
) -> list[TickSummary]:
    summarizer, shares = TickSummarizer(options, eps), map(EventRowGroups.whole_file, files)
    columns, keys = summarizer.columns, options.keys
    for piece in read_decoded_rows(store, shares, columns, [batches], keys):
        summarizer.add(piece)
    found = [summary for summary in by_tick(summarizer.finish(), eps) if summary.rows]
    there = {summary.tick: summary.rows for summary in found}
    if rows not in (there, sum(there.values())):
        expected = rows if isinstance(rows, int) else sum(rows.values())
        reason = f"{batches.text} has {expected} live rows, but the table events has {sum(there.values())}"
        raise batch_counts.changed_rows_error(store, {batches: expected}, reason)
    return found
