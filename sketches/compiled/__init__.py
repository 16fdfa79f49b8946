"""Loops compiled by numba; only updates and merges import them. jit.py also serves other packages."""
