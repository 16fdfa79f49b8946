"""The ledger: summaries of the rows of every batch that is not loaded yet."""
