"""What a scan of all keys of a window would read, told before it runs.

The scan is that of `KeyQuestion.rows`, of the runs or of `events`. Marks and the log of `events` have the
sizes of its files, so no data are read for the plan. A file counts with all of its bytes. Of runs on this
machine DuckDB reads whole files; of `events`, and in an object store, only the needed columns.

The plan leaves three things out. Local files are compared with their digests, once in a process. If DuckDB
turns out not to be able to read a file of `events` by itself, the runs are scanned. And of live batches the
plan has the rows, but not the files and bytes: they are read once, and stay in memory if they fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark.query.answers.plan import SCAN, Plan
from tidemark.query.keys.key_question import KeyQuestion, WantedKeys


@dataclass(frozen=True, slots=True)
class PlannedScan(WantedKeys[Plan]):
    """The plan of a scan of all keys of the window."""

    def answers(self, questions: Sequence[KeyQuestion]) -> Plan:
        """The plan; its rounds are not known before."""
        (question,) = questions
        plan = Plan(ways=[SCAN], estimates={SCAN: question.scan_cost(summed=True) / 1000})
        events = question.event_files()
        if events is not None:
            plan.files = len({path for path, _ in events})
            plan.rows = sum(max(0, file.rows) for _, file in events)
            plan.bytes = sum(file.size for _, file in events)
            return plan
        shares = question.history(question.window.overlapping).shares
        files = [file for share in shares for file in share.marks.files]
        plan.files = len(files)
        plan.blocks = sum(len(share.marks.positions) for share in shares)
        plan.rows = sum(file.rows for file in files) + sum(question.view.live_counts.values())
        plan.bytes = sum(file.size for file in files)
        return plan
