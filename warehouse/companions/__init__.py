"""Companions: mergeable summaries of a column, of kinds that users register in each process."""
