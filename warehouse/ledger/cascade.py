"""The cascade of the ledger: how wide its ranges are, and how often a summary is merged on the way there.

Of one tick, the rows of a batch come to a task in pieces, to the driver from the tasks, and to a reader
in ranges of batches, each of which may lie in wider ones. At each of these places summaries are merged
once, all together, so that no summary is the result of more than MERGES merges above one another. What
a sketch loses in each is taken from its error beforehand, see keysummaries.py. How many ranges of one level a
range of the next holds is the writer's tuning (`fan`); a range is made of ranges of the same fan alone.
"""

from __future__ import annotations

LEVELS = 4  # by default, with a fan of 32, the widest range holds a million batches
IN_A_BATCH = 2  # merges of pieces to a task's summary, and of tasks' summaries to the batch's
MERGES = IN_A_BATCH + LEVELS
