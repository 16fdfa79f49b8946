"""Builds runs: sorts batches and merges runs, in tasks, and commits them to history step by step."""
