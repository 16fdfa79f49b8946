"""The projections of history: the sorted values of a measure, and the sorted row counts of keys."""
