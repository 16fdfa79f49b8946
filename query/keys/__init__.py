"""Frequencies of keys and prefixes: exact counts of history, bounds of the live side, scans of all keys."""
