"""Builds runs: sorts batches and merges runs, in tasks. Nothing is committed here."""
