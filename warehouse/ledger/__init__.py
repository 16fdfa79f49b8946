"""The ledger: summaries of the rows of every batch that is not loaded yet.

A further summary that is built in is made in batch_summaries, stored by ledger_rows, read by live_summaries,
and checked in verification/ledger_checks. One of a user's own is a companion (warehouse/companions).

batch_summaries, key_summaries
                  what is summarised of a batch, by tick; of the keys of a tick
ledger_rows       summaries as rows of the table, and back
ledger_table      the table: ranges of batches, which nest (the cascade)
live_summaries    what readers get of it, by measure or key
ledger_compaction old rows leave, small files become one
batch_counts, unaccounted
                  batches that another tool changed; batches that neither a plan nor the ledger has
"""
