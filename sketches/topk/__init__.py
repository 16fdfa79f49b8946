"""Continuous top-k: every site knows the k most frequent items of all sites, with certain bounds.

    lists.py     what a site tells the others: its first items, echoes of theirs, and a cut-off
    answer.py    the most frequent items by the lists of all sites, and which of them are certain
    site.py      a site: the rows of its window, when it tells, and what it takes

For live windows of seconds over many sites. Rows of one warehouse need none of it: `wh.top` reads them.
"""
