"""A reader in a process of its own: ``python -m bench.reader URI`` asks and prints its memory (MB) as JSON.

`imports` is the peak when the modules are loaded and nothing is open, `peak` the one after quantiles, many
phis at once, quick answers and windows.
"""

from __future__ import annotations

import json
import sys

import numpy as np

import query
from bench.memory import peak_mb


def main(uri: str) -> None:
    """Asks, and prints what it took."""
    imports = peak_mb()
    wh = query.open(uri)
    phis = np.random.default_rng(5).random(50).tolist()
    for phi in phis:
        wh.quantile(phi)
        wh.quantile(phi, mode="quick")
    whole = peak_mb()
    wh.quantile(np.linspace(0, 1, 101).tolist())
    many = peak_mb()
    for days in (1, 7, 30, 90, 180, 364):
        wh.quantile([0.1, 0.5, 0.99], last=f"{days}d")
    print(json.dumps({"imports": imports, "whole": whole, "many": many, "peak": peak_mb()}))


if __name__ == "__main__":
    main(sys.argv[1])
