"""What one commit changes in a Delta table: files, columns or properties, as values that delta-rs applies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.transaction import (
    AddAction,
    CommitProperties,
    PostCommitHookProperties,
    RemoveAction,
    Transaction,
)

from tidemark.warehouse.delta.data_files import table_without_rows
from tidemark.warehouse.delta.grace import CHECKPOINT_INTERVAL, COMMITS_OF_STREAMS

_BLIND_RETRIES = 10  # by delta-rs, without a pause


class Change(ABC):
    """A change of a table.

    is_taken_up   whether the table object is as one that is opened from the log, once the commit is done
    """

    is_taken_up: ClassVar[bool] = False

    @property
    def added(self) -> Sequence[str]:
        """The paths of new files."""
        return ()

    @abstractmethod
    def apply(self, table: DeltaTable, metadata: Mapping[str, str], *, cleans: bool) -> None:
        """Commits the change to the table at its version.

        metadata   of the commit, for its `commitInfo`
        cleans     whether expired entries of the log may be deleted with the commit
        """


@dataclass(frozen=True, slots=True)
class FileChange(Change):
    """Files that are added and removed.

    blind        commits on top of any version, for rows that do not depend on other rows. In an object store
                 it may lose the race, too
    transactions are set in the same commit
    """

    is_taken_up: ClassVar[bool] = True
    actions: Sequence[AddAction | RemoveAction]
    blind: bool = False
    transactions: Sequence[Transaction] = ()

    @property
    def added(self) -> Sequence[str]:
        """The paths of new files."""
        return [action.path for action in self.actions if isinstance(action, AddAction)]

    def apply(self, table: DeltaTable, metadata: Mapping[str, str], *, cleans: bool) -> None:
        """See `Change.apply`."""
        configuration = table.metadata()
        # Expired entries are looked for with a new checkpoint only, as Spark does: it lists the whole log.
        interval = int(configuration.configuration.get(CHECKPOINT_INTERVAL, COMMITS_OF_STREAMS))
        is_due = cleans and (table.version() + 1) % interval == 0
        table.create_write_transaction(
            list(self.actions),
            mode="append",
            schema=table.schema(),
            partition_by=configuration.partition_columns,
            commit_properties=CommitProperties(
                custom_metadata=dict(metadata),
                max_commit_retries=_BLIND_RETRIES if self.blind else 0,
                app_transactions=list(self.transactions) or None,
            ),
            post_commithook_properties=PostCommitHookProperties(
                create_checkpoint=True, cleanup_expired_logs=None if is_due else False
            ),
        )


@dataclass(frozen=True, slots=True)
class NewColumns(Change):
    """Columns that are added; the rows have NULL there."""

    fields: Sequence[Field]

    def apply(self, table: DeltaTable, metadata: Mapping[str, str], *, cleans: bool) -> None:  # noqa: ARG002
        """See `Change.apply`."""
        table.alter.add_columns(list(self.fields), commit_properties=_once(metadata))


@dataclass(frozen=True, slots=True)
class WiderSchema(Change):
    """The columns, and the fields of structs, that only `schema` has; the rows have NULL there."""

    schema: pa.Schema

    def apply(self, table: DeltaTable, metadata: Mapping[str, str], *, cleans: bool) -> None:  # noqa: ARG002
        """See `Change.apply`."""
        write_deltalake(
            table,
            table_without_rows(self.schema),
            mode="append",
            schema_mode="merge",
            commit_properties=_once(metadata),
        )


@dataclass(frozen=True, slots=True)
class Replacement(Change):
    """All files are replaced, and the columns get the types of `schema`; properties stay."""

    schema: Schema
    files: Sequence[AddAction]

    @property
    def added(self) -> Sequence[str]:
        """The paths of the files."""
        return [action.path for action in self.files]

    def apply(self, table: DeltaTable, metadata: Mapping[str, str], *, cleans: bool) -> None:  # noqa: ARG002
        """See `Change.apply`."""
        table.create_write_transaction(
            list(self.files),
            mode="overwrite",
            schema=self.schema,
            partition_by=table.metadata().partition_columns,
            commit_properties=_once(metadata),
            post_commithook_properties=PostCommitHookProperties(
                create_checkpoint=True, cleanup_expired_logs=False
            ),
        )


@dataclass(frozen=True, slots=True)
class NewProperties(Change):
    """Properties that are set, delta-rs's own and ours."""

    is_taken_up: ClassVar[bool] = True
    properties: Mapping[str, str]

    def apply(self, table: DeltaTable, metadata: Mapping[str, str], *, cleans: bool) -> None:  # noqa: ARG002
        """See `Change.apply`."""
        table.alter.set_table_properties(
            dict(self.properties),
            raise_if_not_exists=False,  # delta-rs knows only Delta's own properties
            commit_properties=_once(metadata),
        )


def _once(metadata: Mapping[str, str]) -> CommitProperties:
    return CommitProperties(custom_metadata=dict(metadata), max_commit_retries=0)
