"""Blocks of run files, the caches over them, and the windows of questions."""
