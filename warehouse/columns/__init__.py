"""Columns: event time and ticks, measures, keys, their types and values. Nothing here reads a file.

column_types.py says what a further type needs.
"""
