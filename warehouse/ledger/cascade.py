"""The cascade of the ledger: the widths of its ranges of batches, and the depth of its merges.

The cascade is a size-tiered merge: rows for `fan` batches repeat what the rows of each batch say, rows for
fan**2 batches repeat those, and so on. `fan` is a parameter of the writer (see `Tuning`); a range is made
only of ranges of the same fan. Summaries of one tick are merged in a task (pieces of a batch), on the driver
(tasks of a batch), and once per level of the cascade, each time all inputs in one merge. So no summary is the
result of more than MERGES nested merges. Each merge loses some accuracy of an ECM-sketch; the sketches are
built that much more accurate (`eps_of_merge_inputs` in key_summaries.py).
"""

from __future__ import annotations

LEVELS = 4  # by default, with a fan of 32, the widest range holds a million batches
IN_A_BATCH = 2  # merges of pieces to a task's summary, and of tasks' summaries to the batch's
MERGES = IN_A_BATCH + LEVELS
