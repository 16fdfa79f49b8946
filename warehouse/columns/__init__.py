"""Columns: event time and ticks, measures, keys, their types and values. Nothing here reads a file.

column_types.py has all types, and says what a further one needs. A type that Delta lacks, such as TIME (a
time of day), cannot be stored in `events`: it is given as an integer, such as seconds since midnight.
"""
