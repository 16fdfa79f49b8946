"""The streaming side: batches into the live ledger.

`append` takes one batch: its rows into `events`, its summaries into the ledger.
"""

from stream.append import append

__all__ = ["append"]
