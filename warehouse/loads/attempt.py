"""An attempt to make a run: where its files go, and how its rows are shared out among tasks.

An attempt has a name that no other has, so two loaders that make the same run never write the same
file, and what the one that loses has written is swept by maintenance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.runs.projection import Projection
from tidemark.warehouse.runs.run_tables import run_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidemark.warehouse.execution.executors import Executor

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a run, by its name; `eps` is the warehouse's promise."""

    executor: Executor
    store: Store
    eps: float
    run: Run
    name: str

    def path(self, projection: Projection[Any], number: int) -> str:
        """Where the run's file of that number goes."""
        return run_path(projection, self.run, self.name, number)

    def chunk(self, projection: Projection[Any], number: int) -> str:
        """Where a sorted chunk waits for its merge."""
        return f"{self._chunks(projection)}/{number:05d}.parquet"

    def drop_chunks(self, projection: Projection[Any]) -> None:
        """Deletes the chunks: they are merged."""
        self.store.filesystem().delete_dir(self._chunks(projection))

    @property
    def slice_rows(self) -> int:
        """Rows of a merge that a task holds at a time."""
        return self.store.tuning.slice_rows

    def by_file(self, slices: Sequence[T], rows: int) -> list[tuple[T, ...]]:
        """The slices of a merge of so many rows, shared out: those of one file, and one task, together."""
        least, most = self.store.tuning.file_rows
        each = max(1, min(most, max(least, rows // self.executor.cores)) // self.slice_rows)
        return [tuple(slices[at : at + each]) for at in range(0, len(slices), each)]

    def _chunks(self, projection: Projection[Any]) -> str:
        # Delta looks past names that start with '_'.
        return f"{projection.runs_table}/_chunks/{self.name}"
