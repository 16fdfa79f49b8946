"""Digests, and Parquet files that carry them: damage is noticed when a file is read."""
