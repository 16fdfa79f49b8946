"""Peak memory of processes, from Linux's /proc."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil


def peak_mb(pid: int | str = "self") -> float:
    """The greatest resident size of a process so far, in MB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def own_mb() -> float:
    """This process's resident memory that is not a file's, in MB: libraries' code is left out."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def reset_worker_peaks() -> None:
    """The peaks of Spark's Python workers below this process count from now on."""
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error, OSError):
            if any("pyspark" in word for word in child.cmdline()):
                Path(f"/proc/{child.pid}/clear_refs").write_text("5")


class Watch:
    """Looks every few milliseconds while the block runs and keeps the greatest of what it saw."""

    def __init__(self, look: Callable[[], float], seconds: float = 0.005) -> None:
        self.peak = 0.0
        self._look, self._seconds = look, seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(self._seconds):
            self.peak = max(self.peak, self._look())


def greatest_worker_mb() -> float:
    """The peak of any Python worker that Spark runs below this process now."""
    peaks = [0.0]
    for child in psutil.Process().children(recursive=True):
        try:
            if any("pyspark" in word for word in child.cmdline()) and "java" not in child.name():
                peaks.append(peak_mb(child.pid))
        except (psutil.Error, OSError, AssertionError):
            continue  # it ended meanwhile
    return max(peaks)
