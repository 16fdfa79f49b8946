"""Digests, and Parquet files that contain them, so that a read detects damage."""
