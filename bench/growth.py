"""A process of its own that loads step after step and tells its memory: ``python -m bench.growth URI ROWS 10 40``.

The last line on stdout is a JSON list: for each number of steps the peaks (MB) of a Python worker, of this
driver process, and of a fresh reader that asks for quantiles and windows.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import warehouse
from bench.data import year
from bench.engines import start_spark
from bench.memory import WorkerWatch, peak_mb


def main(folder: Path, rows: int, after: list[int]) -> None:
    """Loads, and prints what was found."""
    spark = start_spark(folder.parent)
    uri = str(folder / "warehouse")
    found = []
    parts = year("lognormal", rows * max(after), max(after), days=365, mixed=False)
    with WorkerWatch() as watch:
        for part in parts:
            # Made elsewhere: this process is the driver whose memory counts.
            source = folder / "source" / f"{part.step}"
            subprocess.run([sys.executable, "-m", "bench.growth", "write", repr(part), str(source)], check=True)
            frame = spark.read.parquet(str(source))
            if part.step == 0:
                warehouse.create(spark, uri, ["value"], key="key", time="time", schema=frame)
            warehouse.load(spark, uri, frame, batch=f"step {part.step}")
            if part.step + 1 in after:
                found.append({"steps": part.step + 1, "worker": watch.peak, "driver": peak_mb(), "reader": _reader(uri)})
    print(json.dumps(found))


def _reader(uri: str) -> float:
    done = subprocess.run(
        [sys.executable, "-m", "bench.reader", uri], check=True, stdout=subprocess.PIPE, text=True
    )
    return float(json.loads(done.stdout)["peak"])


if __name__ == "__main__":
    if sys.argv[1] == "write":
        from bench.data import Rows

        eval(sys.argv[2], {"Rows": Rows}).write(Path(sys.argv[3]))  # noqa: S307 - our own repr
    else:
        main(Path(sys.argv[1]), int(sys.argv[2]), [int(word) for word in sys.argv[3:]])
