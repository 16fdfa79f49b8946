"""Columns: event time and ticks, measures, keys and their types. Nothing here reads a file."""
