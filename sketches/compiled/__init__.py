"""Loops that numba compiles; loaded by updates and merges alone."""
