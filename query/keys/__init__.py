"""Frequencies of keys: counts of history, bounds of the live side, put together."""
