"""How rows leave history: selected once, decided by one commit to `events`, taken out of the runs.

`unload`, `delete` and `correct` (remove.py, correct.py) go through these files in this order:

row_values, value_ranges, given_rows
                  rows by their values (`keys=`), such as all rows of one key; files without any; given rows
conditions        rows by a condition (`where=`), which query/scans/row_conditions.py checks, or by times
rows_to_remove    what a removal takes: batches, a condition, what comes instead; the plans that lose rows
coming            corrections: the rows that come
select, rewrite   a mask for each file of `events`, in tasks; the files without the selected rows
room_to_keep      how many rows may be kept, so that no run is built again
finish, reports   the removal is decided, and applied to the runs; what it did

change_feed       changes of another table as rows that come and rows that leave
upkeep            in maintenance: files of no removal, and kept rows that nobody needs
purge_traces, purge_files
                  for a purge: no table names the rows; a grace later no file has them

docs/signed_steps.md has the protocol and its crash table.
"""
