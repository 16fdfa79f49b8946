"""The store of a warehouse: one folder, on a disk of this machine or in an object store."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from pyarrow import fs

from tidemark.warehouse.delta import containment
from tidemark.warehouse.delta.addresses import located
from tidemark.warehouse.delta.remote_files import RemoteFiles, remote_files
from tidemark.warehouse.errors import InputError, NotAWarehouse
from tidemark.warehouse.sizes import DEFAULT, Tuning, tuning_of

UNFINISHED_UPLOADS = (
    "Uploads that a kill leaves unfinished stay in the bucket, and maintenance cannot see them: let a "
    "lifecycle rule abort them (docs/guides/object_stores.md)."
)


@dataclass(frozen=True, slots=True)
class Store:
    """A warehouse's folder: a plain value that is sent to Spark's tasks.

    uri               an absolute path, or an address of an object store in the form of delta-rs
    storage_options   the options of the object store, as delta-rs defines them: credentials, so never shown
    tuning            the sizes of the current call
    """

    uri: str
    storage_options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    tuning: Tuning = field(default=DEFAULT, compare=False)

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
    def is_local(self) -> bool:
        """Whether the folder is in a file system of this machine."""
        return "://" not in self.uri

    @property
    def keeps_parts(self) -> bool:
        """Whether the store keeps the parts of unfinished uploads until somebody aborts them."""
        return self.uri.startswith(("s3://", "gs://"))

    def check_place(self, *, writing: bool = False) -> None:
        """NotAWarehouse if a local path is a file; InputError without permission for its folder."""
        if not self.is_local:
            return
        place = Path(self.uri)
        while not os.path.lexists(place) and place != place.parent:
            place = place.parent
        if not place.is_dir():
            raise NotAWarehouse(f"{place} is a file. A warehouse is a folder: give another path.")
        if not os.access(place, os.R_OK | os.X_OK | (os.W_OK if writing else 0)):
            raise InputError(
                f"no permission to {'write into' if writing else 'read'} the folder {place}. "
                "Ask its owner for it, or choose another path."
            )

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

    def check_links(self, path: str) -> None:
        """DamagedWarehouse if a part of the path, relative to the warehouse, is a symbolic link."""
        if self.is_local:
            containment.check_links(self.uri, path)

    def check_log(self, name: str) -> list[str]:
        """The names in the table's log, on a local disk; DamagedWarehouse if its folder or one is a link."""
        return containment.check_log(self.uri, name) if self.is_local else []

    def filesystem(self) -> fs.FileSystem:
        """A file system whose root is the warehouse's folder; it refuses symbolic links below it."""
        if self.is_local:
            return containment.ContainedFileSystem(self.uri)
        return self.files.filesystem

    @property
    def files(self) -> RemoteFiles:
        """The files of a warehouse in an object store."""
        return remote_files(self.uri, self.storage_options)
