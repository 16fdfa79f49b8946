"""The cascade of the ledger: how many batches a range summarises, and how deep merges nest.

The cascade is a size-tiered merge. Ledger rows for `fan` batches repeat what the rows of each batch say, rows
for fan**2 batches repeat those, and so on up to fan**LEVELS. The fan is FAN unless a caller chooses another
one (`Tuning.fan`). A range is only made of narrower ranges of the same fan.

Merges. Summaries of one tick are merged in a task (pieces of a batch), on the driver (tasks of a batch), and
once per level of the cascade. A merge takes all its inputs at once. So no summary is the result of more than
MERGES nested merges. Each merge loses some accuracy of an ECM-sketch; the sketches are built that much more
accurate (`eps_of_merge_inputs` in ledger/key_summaries.py).

Why a fan is neither a square nor a cube. The ledger does not store the fan. A range is fan, fan**2, fan**3 or
fan**4 batches wide, and without squares and cubes such a width belongs to one fan only. So ranges of two fans
are never taken for each other: 64 = 8**2 = 4**3 is refused, 63 and 65 are accepted.
"""

from __future__ import annotations

FAN = 32
LEVELS = 4  # with the default fan the widest range holds a million batches
IN_A_BATCH = 2  # merges of pieces to a task's summary, and of tasks' summaries to the batch's
MERGES = IN_A_BATCH + LEVELS


def is_ambiguous(fan: int) -> bool:
    """Whether the width of a range of this fan may be that of a range of another fan."""
    return fan == 1 or any(round(fan ** (1 / power)) ** power == fan for power in (2, 3))
