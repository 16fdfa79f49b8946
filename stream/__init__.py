"""The streaming side: batches into the live ledger.

`append` takes one batch: its rows into `events`, its summaries into the ledger. `start` does so
for every batch of a streaming DataFrame. `parse` makes one of text records.
"""

from stream.append import append
from stream.records import parse
from stream.start import BatchReport, start

__all__ = ["BatchReport", "append", "parse", "start"]
