"""Streams: appends batches to a warehouse, where they are live until a load moves them into history.

`append` takes one batch: it writes the rows to `events` and their summaries to the ledger. `start` does this
for every batch of a streaming DataFrame. `parse` makes such a DataFrame from text records. Its calls:

    stream.append(spark, uri, df, source="web", batch=0)    # one batch; None and a table likewise
    stream.start(streaming_df, uri, source="web", checkpoint="folder", trigger="10 s")
    stream.parse(records, options, "json")                  # text records as such a DataFrame

The rooms, from the lowest floor to the highest:

    append, records   one batch: rows, summaries and ledger rows; text records as rows
    start             every batch of a streaming DataFrame
"""

from tidemark.stream.append import append
from tidemark.stream.records import parse
from tidemark.stream.start import BatchReport, start

__all__ = ["BatchReport", "append", "parse", "start"]
