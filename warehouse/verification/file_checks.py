"""Whether a file is as it was written: its size is the one in the log, and its content fits its seal."""

from __future__ import annotations

from tidemark.warehouse.delta.commits import first_line
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.integrity.sealed_files import open_sealed


def size_fault(store: Store, table: str, file: DataFile) -> str | None:
    """What is wrong if the file is missing or cut; None if it has its size."""
    size = store.filesystem().get_file_info(f"{table}/{file.path}").size or 0
    return None if size == file.size else f"{file.path} has {size} bytes, the log says {file.size}"


def content_fault(store: Store, table: str, file: DataFile) -> str | None:
    """What is wrong with the rows of the file; None if all columns are as they were written.

    Reads it once, a row group at a time. Of a file that another tool wrote, only what cannot be decoded is
    told.
    """
    try:
        with open_sealed(store.filesystem(), f"{table}/{file.path}", checksums=True) as sealed:
            sealed.expect(0, sealed.metadata.num_row_groups)
            for group in range(sealed.metadata.num_row_groups):
                sealed.read_group(group)
    except (DamagedWarehouse, FileNotFoundError) as error:
        return first_line(error)
    return None
