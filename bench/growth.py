"""Loads step after step in a process of its own: ``python -m bench.growth FOLDER ROWS 10 40``.

The last line on stdout is a JSON list: for each number of steps the peaks (MB) of a Python worker, of this
driver process, and of a fresh reader that asks for quantiles and windows.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from bench.data import Rows, year
from bench.engines import start_spark
from bench.memory import Watch, greatest_worker_mb, peak_mb
from tidemark import warehouse


def main(folder: Path, rows: int, after: list[int]) -> None:
    """Loads, and prints what was found."""
    source, uri = folder / "source", str(folder / "warehouse")
    parts = year("lognormal", rows * max(after), max(after), days=365, mixed=False)
    # Rows are made in another process: this one is the driver whose memory counts.
    with ProcessPoolExecutor(1, get_context("spawn")) as maker:
        list(maker.map(Rows.write, parts, [source / f"{part.step}" for part in parts]))
    spark = start_spark(folder.parent)
    found = []
    with Watch(greatest_worker_mb, 0.05) as watch:
        for part in parts:
            frame = spark.read.parquet(str(source / f"{part.step}"))
            if part.step == 0:
                warehouse.create(spark, uri, ["value"], time="time", schema=frame)
            warehouse.load(spark, uri, frame, batch=f"step {part.step}")
            if part.step + 1 in after:
                found.append(
                    {
                        "steps": part.step + 1,
                        "worker": watch.peak,
                        "driver": peak_mb(),
                        "reader": _reader(uri),
                    }
                )
    print(json.dumps(found))


def _reader(uri: str) -> float:
    command = [sys.executable, "-m", "bench.reader", uri]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own
    return float(json.loads(done.stdout)["peak"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), [int(word) for word in sys.argv[3:]])
