"""Writes the warehouses that are kept: `python -m tests.compatibility.keep VERSION`.

Run it once with the code of a release whose formats are new, and commit the archive. What a release wrote is
never written again: those archives stand for what users have on disk.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.compatibility import rows
from tests.query.tally import Tally
from tidemark import stream, warehouse
from tidemark.stream.append import append_batch
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.execution.executors import executor_for
from tidemark.warehouse.ingest.row_filter import RowFilter
from tidemark.warehouse.sizes import Tuning

FOLDER = Path(__file__).parent
# Sorts, slices and files of a few rows: several files a run, several blocks a file. Ranges of five batches.
TINY = Tuning(sort_rows=180, slice_rows=64, file_rows=(64, 128), key_block_rows=16, fan=5)
RECORD = [(name, pa.string()) for name in ("_position", "_raw", "_reason")]


def main(version: str) -> None:
    """Makes the warehouses in a new folder and packs them."""
    archive = FOLDER / f"written-{version}.tar.xz"
    if archive.exists():
        sys.exit(f"{archive.name} is there already, and stays as it is.")
    with tempfile.TemporaryDirectory() as folder:
        timed, plain, wide = (Path(folder, name) for name in ("timed", "plain", "wide"))
        options: dict[str, Any] = {"eps": 0.02, "kappa": 2, "key_eps": 0.05, "key_delta": 0.05}
        warehouse.create(
            None, timed, ["x", "n", "d"], key="k", time="t", tick="1 day", schema=rows.TIMED, **options
        )
        for (source, name), batch in rows.timed_batches().items():
            write(timed, source, name, rows.table(batch, rows.TIMED))
            if (source, name) == ("web", rows.LOADED[-1]):
                warehouse.load(None, timed, tuning=TINY)
        refused = [(*rows.timed_rows("refused", 1)[0], str(at), "{", "no record") for at in range(3)]
        executor = executor_for(None)
        append_batch(
            executor,
            Store.from_uri(timed),
            executor.input(rows.table(refused, pa.schema([*rows.TIMED, *RECORD]))),
            BatchRange("partner", 2, 2),
            row_filter=RowFilter(latest=None, reasons=True),
        )
        warehouse.create(None, plain, ["n"], key="k", kappa=2, grace="0")
        for (source, name), batch in rows.plain_batches().items():
            write(plain, source, name, rows.table(batch, rows.PLAIN))
        warehouse.maintain(None, plain)
        warehouse.register_companion(Tally())
        companions = {"numbers": ("tally", "n")}
        warehouse.create(None, wide, ["n"], keys=rows.WIDE_KEYS, groups=["k"], companions=companions)
        for (source, name), batch in rows.wide_batches().items():
            write(wide, source, name, rows.table(batch, rows.PLAIN))
        for made in (timed, plain, wide):
            report = warehouse.verify(made)
            assert report.ok, str(report)
        with tarfile.open(archive, "w:xz", preset=9) as packed:
            packed.add(folder, ".")
    print(f"{archive.name}: {archive.stat().st_size:,} bytes")


def write(uri: Path, source: str, name: Any, batch: pa.Table) -> None:
    """One batch, loaded or streamed."""
    if source == "bulk":
        warehouse.load(None, uri, batch, name, tuning=TINY)
    else:
        stream.append(None, uri, batch, source=source, batch=name, tuning=TINY)


if __name__ == "__main__":
    main(sys.argv[1])
