"""From batches to runs: sorting and merging in tasks. Nothing is committed here."""
