"""A reader in a process of its own: ``python -m bench.reader URI`` asks and prints its memory (MB) as JSON.

`peak` is the greatest resident size, `imports` what it was before anything was opened. A library's code
becomes resident when it is first used, which is no memory of ours: `own` leaves files out (RssAnon, looked at
every few milliseconds, above its size before the opening), `own_whole` is that before windows are asked.
"""

from __future__ import annotations

import json
import sys

import numpy as np

from bench.memory import Watch, own_mb, peak_mb
from tidemark import query


def main(uri: str) -> None:
    """Asks, and prints what it took."""
    imports, before = peak_mb(), own_mb()
    with Watch(own_mb) as watch:
        wh = query.open(uri)
        for phi in np.random.default_rng(5).random(50).tolist():
            wh.quantile(phi)
            wh.quantile(phi, mode="quick")
        wh.quantile(np.linspace(0, 1, 101).tolist())
        whole = watch.peak - before
        for days in (1, 7, 30, 90, 180, 364):
            wh.quantile([0.1, 0.5, 0.99], last=f"{days}d")
    found = {"imports": imports, "peak": peak_mb(), "own_whole": whole, "own": watch.peak - before}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
