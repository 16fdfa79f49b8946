"""Streams: appends batches to a warehouse, where they are live until a load moves them into history.

`append` takes one batch: it writes the rows to `events` and their summaries to the ledger. `start` does this
for every batch of a streaming DataFrame. `parse` makes such a DataFrame from text records. The package and
its calls:

    stream.append(spark, uri, df, source="web", batch=0)    # one batch; or None and a table
    stream.start(streaming_df, uri, source="web", checkpoint="folder", trigger="10 s")
    stream.parse(records, options, "json")                  # text records as such a DataFrame
    stream.start(feed, uri, source="orders", checkpoint="folder", changes=True)   # a change feed
    stream.parse_changes(records, options)                  # changes in JSON as such a DataFrame

The rooms, from the lowest floor to the highest:

    append, feeds, records
              one batch: rows, summaries and ledger rows; change feeds as corrections; text records as rows
    start     every batch of a streaming DataFrame
"""

from tidemark.stream.append import append
from tidemark.stream.feeds import parse_changes
from tidemark.stream.records import parse
from tidemark.stream.start import BatchReport, start

__all__ = ["BatchReport", "append", "parse", "parse_changes", "start"]
