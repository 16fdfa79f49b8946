"""Geometric monitoring: certain answers about the union of many streams, with few messages.

queries.py says what can be monitored, zones.py has the proof, coordinator.py the errata of the paper.

Source: Papapetrou, Garofalakis and Deligiannakis, "Sketching distributed sliding-window data streams", VLDB
Journal 2015, section 6.
"""
