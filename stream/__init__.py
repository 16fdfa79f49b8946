"""The streaming side: batches into the live ledger.

`append` takes one batch: its rows into `events`, its summaries into the ledger. `start` does so
for every batch of a streaming DataFrame. `parse` makes one of text records.
"""

from tidemark.stream.append import append
from tidemark.stream.records import parse
from tidemark.stream.start import BatchReport, start

__all__ = ["BatchReport", "append", "parse", "start"]
