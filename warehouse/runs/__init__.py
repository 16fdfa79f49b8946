"""The storage engine of history: projections, and the layout, merges, marks, files and commits of runs.

levels            which runs there are, and when which of them are merged: nothing else decides it
cuts              how a merge is divided into slices
projection        what a sorted copy of columns of `events` defines; warehouse/projections has each
run_files, run_tables
                  files of runs; their tables, and the commits of runs
marks, companion_marks
                  what the marks of all projections share; the cells of companions in them
"""
