"""The cascade of the ledger: the widths of its ranges of batches, and the depth of its merges.

The cascade is a size-tiered merge: rows for FAN batches repeat what the rows of each batch say, rows for
FAN**2 batches repeat those, and so on. Summaries of one tick are merged at each of these places, all inputs
at once: in a task (pieces of a batch), on the driver (tasks of a batch), and once per level of the cascade.
So no summary is the result of more than MERGES nested merges. Each merge loses some accuracy of an
ECM-sketch; the sketches are built that much more accurate (`eps_of_merge_inputs` in key_summaries.py).
"""

from __future__ import annotations

FAN = 32  # batches, or ranges of the level below, in one range of the cascade
LEVELS = 4  # the widest range holds a million batches
IN_A_BATCH = 2  # pieces to a task's summary, and tasks' summaries to the batch's
MERGES = IN_A_BATCH + LEVELS
