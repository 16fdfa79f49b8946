"""The completion record of a step: the versions of the tables once every projection has the step.

A step does not determine the live side, and the versions of many tables are not one moment. So the commit
that completes a step, which is that of its run in the last projection, notes the step and the versions of
the tables in its `commitInfo`:

    tidemark.completes: {"step": 7, "versions": {"runs/delay": 12, "steps": 8, "events": 40, ...}}

The record is there if and only if that commit is, so it is right at any crash, and costs no commit. No
projection has a later step by then, as a load finishes a step everywhere before it begins the next one. So
these versions are a state of the warehouse: history up to the step, and the live side of that moment.

The versions of runs and steps are known to the load. Those of marks, `ledger`, `rejected` and `events` are
looked for just before the commit, in this order, the order of a reader. In an object store that would take
requests: there the record has versions of marks and `events` that have the step, and leaves out `ledger` and
`rejected`, whose versions the time of the commit tells.

A record lasts as long as the log that has it, which is longer than the grace. A step may lack a record: if
another version of tidemark loaded it, or if it was built for a key or group that was added later. Only
`query.open(at=step)` reads the record; without one it uses the times of commits (snapshots/past.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.warehouse.delta.commits import COMPLETES
from tidemark.warehouse.delta.log_versions import newest_versions
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, LEDGER, REJECTED


@dataclass(frozen=True, slots=True)
class Completion:
    """A step, and the version of each table once it was complete."""

    step: int
    versions: Mapping[str, int]

    def notes(self) -> dict[str, str]:
        """The record, for the `commitInfo`."""
        return {COMPLETES: json.dumps({"step": self.step, "versions": dict(self.versions)})}

    @classmethod
    def parse(cls, text: str | None) -> Completion | None:
        """The record of a commit; None if it has none, or one that cannot be read."""
        try:
            found = json.loads(text or "null")
            return cls(int(found["step"]), {str(name): int(at) for name, at in found["versions"].items()})
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


def completion_of(store: Store, step: int, known: Mapping[str, int], moving: Mapping[str, int]) -> Completion:
    """The record of a step that the next commit completes.

    known    the versions of runs and steps
    moving   versions of marks and `events` that have the step
    """
    if store.files.takes_rounds:
        return Completion(step, {**known, **moving})
    marks = {name: version for name, version in moving.items() if name != EVENTS}
    found = newest_versions(store, {**marks, LEDGER: None, REJECTED: None})
    return Completion(step, {**known, **found, **newest_versions(store, {EVENTS: moving[EVENTS]})})
