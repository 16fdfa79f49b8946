"""Reads of blocks of run files, the LRU cache, and the windows of questions."""
