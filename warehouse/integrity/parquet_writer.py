"""pyarrow's writer of Parquet files, except that an error is raised once, and no second error hides it.

pyarrow closes a writer whenever it is left or collected, also after an error. That writes to the file again:
on a full disk the second error hides the first one, and a third is printed when the writer is collected.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


class ParquetWriter(pq.ParquetWriter):  # type: ignore[misc]  # pyarrow has no types
    """A writer that is closed once, and only if all of the file was written."""

    def write_table(self, table: pa.Table, row_group_size: int | None = None) -> None:
        """Writes row groups; after an error the writer counts as closed."""
        try:
            super().write_table(table, row_group_size)
        except BaseException:
            self.drop()
            raise

    def close(self) -> None:
        """Writes the footer; after an error the writer counts as closed."""
        try:
            super().close()
        finally:
            self.is_open = False

    def drop(self) -> None:
        """Ends the writer without a footer: the file is of no use."""
        self.is_open = False

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.drop()
