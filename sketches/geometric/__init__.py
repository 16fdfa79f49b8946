"""Geometric monitoring: certain answers about the union of many streams, with few messages.

    queries.py       what can be monitored, and what is promised
    layout.py        the cells of all queries in one vector a site
    zones.py         the safe zones around what was reported last, with the proof
    site.py          a site: counters, drifts, complaints
    coordinator.py   balancing, and the two phases of a synchronisation; the errata of the paper
    messages.py      what they send, byte by byte
    monitoring.py    all of it in one process

Source: Papapetrou, Garofalakis and Deligiannakis, "Sketching distributed sliding-window data streams", VLDB
Journal 2015, section 6.
"""
