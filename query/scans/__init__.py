"""Answers that no projection has: exact scans of the visible rows of `events` with DuckDB."""
