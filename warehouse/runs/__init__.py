"""The storage engine of history: projections, and the layout, merges, marks, files and commits of runs."""
