"""Peak memory of processes, from Linux's /proc."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import psutil


def peak_mb(pid: int | str = "self") -> float:
    """The greatest resident size of a process so far, in MB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


class WorkerWatch:
    """The peak of any Python worker that Spark started from this process, while the block runs."""

    def __enter__(self) -> WorkerWatch:
        self.peak = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(0.05):
            for child in psutil.Process().children(recursive=True):
                try:
                    if any("pyspark" in word for word in child.cmdline()) and "java" not in child.name():
                        self.peak = max(self.peak, peak_mb(child.pid))
                except (psutil.Error, OSError, AssertionError):
                    continue  # it ended meanwhile
