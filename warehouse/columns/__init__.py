"""Columns: event time and ticks, measures, keys, their types and values. Nothing here reads a file."""
