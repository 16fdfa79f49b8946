"""The store of a warehouse: one folder, on a disk of this machine, in an object store or behind a server."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from pyarrow import fs

from tidemark.warehouse.columns.column_names import ColumnNames
from tidemark.warehouse.delta.addresses import located
from tidemark.warehouse.delta.far_files import FarFiles, far_files
from tidemark.warehouse.delta.files import Files
from tidemark.warehouse.delta.near_files import NearFiles
from tidemark.warehouse.per_process import per_process
from tidemark.warehouse.sizes import DEFAULT, Tuning, tuning_of

UNFINISHED_UPLOADS = (
    "Uploads that a kill leaves unfinished stay in the bucket, and maintenance cannot see them: let a "
    "lifecycle rule abort them (docs/guides/object_stores.md)."
)


@dataclass(frozen=True, slots=True)
class Store:
    """A warehouse's folder: a plain value that is sent to Spark's tasks.

    uri               an absolute path, an address of an object store in the form of delta-rs, or of a server
    storage_options   the options of the object store, as delta-rs defines them: credentials, so never shown
    tuning            the sizes of the current call
    names             the names of the columns of `events`; None where no rows of it are read
    """

    uri: str
    storage_options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    tuning: Tuning = field(default=DEFAULT, compare=False)
    names: ColumnNames | None = field(default=None, compare=False)

    @classmethod
    def from_uri(
        cls,
        uri: str | os.PathLike[str],
        storage_options: dict[str, str] | None = None,
        tuning: Tuning | None = None,
    ) -> Store:
        """The store at a path, an address or a name in a catalog: see addresses.py."""
        address, options = located(uri, storage_options)
        return cls(address, tuple(sorted(options.items())), tuning_of(tuning))

    @property
    def column_names(self) -> ColumnNames:
        """The names of the columns of `events`; ValueError if nobody has said them."""
        if self.names is None:
            raise ValueError("rows of events were asked for before the names of their columns were read")
        return self.names

    @property
    def keeps_parts(self) -> bool:
        """Whether the store keeps the parts of unfinished uploads until somebody aborts them."""
        return self.uri.startswith(("s3://", "gs://"))

    @property
    def options(self) -> dict[str, str] | None:
        """The storage options in the form of delta-rs; None if there are none."""
        return dict(self.storage_options) or None

    def table(self, name: str) -> str:
        """The address of a table for delta-rs."""
        return f"{self.uri}/{name}"

    def spark_path(self, name: str) -> str:
        """The address of a table for Spark, whose S3 scheme is s3a."""
        path = self.table(name)
        return "s3a" + path[2:] if path.startswith("s3://") else path

    def filesystem(self) -> fs.FileSystem:
        """A file system whose root is the warehouse's folder; it refuses symbolic links below it."""
        return self.files.filesystem

    @property
    def files(self) -> Files:
        """The files of the warehouse, near or far."""
        return _near_files(self.uri) if "://" not in self.uri else self.far_files

    @property
    def far_files(self) -> FarFiles:
        """The files of a warehouse in a store or behind a server, with the methods that only these have."""
        if not self.uri.startswith(("http://", "https://")):
            return far_files(self.uri, self.storage_options)
        from tidemark.warehouse.delta.served_files import served_files

        return served_files(self.uri, self.storage_options)


@per_process
def _near_files(folder: str) -> NearFiles:
    return NearFiles(folder)
