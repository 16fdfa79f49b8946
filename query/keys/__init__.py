"""Frequencies of keys: exact counts of history, bounds of the live side, and scans over all keys."""
