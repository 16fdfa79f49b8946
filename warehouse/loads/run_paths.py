"""The paths of a run's files in an attempt to write it, and how a merge's slices are divided among tasks.

Every attempt has a unique name, which is part of the paths of its files. So two loads that write the same run
never write the same file. Maintenance deletes the files of attempts that were never committed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tidemark.warehouse.delta.retries import delete_folder
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.runs.projection import Projection
from tidemark.warehouse.runs.run_tables import run_path
from tidemark.warehouse.work import Work

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to write `run`; `name` is unique.

    `chunk_store` is where sorted chunks are written; a merge of runs writes none.
    """

    work: Work
    run: Run
    name: str
    chunk_store: Store

    def file_path(self, projection: Projection[Any], number: int) -> str:
        """The path of the run's file with this number."""
        return run_path(projection, self.run, self.name, number)

    def chunk_path(self, projection: Projection[Any], number: int) -> str:
        """The path of a sorted chunk, which a merge will read."""
        return f"{self._chunks_folder(projection)}/{number:05d}.parquet"

    def delete_chunks(self, projection: Projection[Any]) -> None:
        """Deletes the chunks after they were merged."""
        delete_folder(self.chunk_store.filesystem(), self._chunks_folder(projection))

    @property
    def slice_rows(self) -> int:
        """Rows of a merge that a task holds at a time."""
        return self.work.store.tuning.slice_rows

    def group_by_file(self, slices: Sequence[T], rows: int) -> list[tuple[T, ...]]:
        """Groups the slices of a merge of `rows` rows: each group is one file, written by one task.

        A file gets an equal share of the rows per core, within the limits of `Tuning.file_rows`.
        """
        least, most = self.work.store.tuning.file_rows
        file_rows = min(most, max(least, rows // self.work.executor.cores))
        per_file = max(1, file_rows // self.slice_rows)
        return [tuple(slices[start : start + per_file]) for start in range(0, len(slices), per_file)]

    def _chunks_folder(self, projection: Projection[Any]) -> str:
        # Delta ignores names that start with '_'.
        return f"{projection.runs_table}/_chunks/{self.name}"
