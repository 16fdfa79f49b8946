"""Loops compiled by numba; only updates and merges import them."""
