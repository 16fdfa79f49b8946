"""Continuous top-k: every site knows the k most frequent items of all sites, with certain bounds.

For live windows of seconds over many sites. Rows of one warehouse need none of it: `wh.top` reads them.
"""
