"""A reader in a process of its own, as a notebook would be: it asks without pause until it is told to stop.

    python watcher.py WAREHOUSE

The last line is JSON: how often it asked, the greatest number of rows, and every error: a row count that went
back, an answer whose bounds do not fit it, or an exception.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import query


def main(uri: str) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    print("ready", flush=True)
    wh = query.open(uri)
    asked = rows = 0
    errors: list[str] = []
    while not stop.is_set() and len(errors) < 10:
        try:
            for mode in ("quick", "accurate"):
                answer = wh.quantile(0.9, mode=mode)
                asked += 1
                promised = {"quick": answer.eps * answer.N, "accurate": answer.eps * answer.m}[mode]
                if rows > answer.N:
                    errors.append(f"{answer.N} rows after {rows}: {answer.as_of}")
                if not answer.low <= answer.value <= answer.high or answer.error_bound > promised:
                    errors.append(repr(answer))
                rows = answer.N
        except query.EmptyWindow:
            continue
        except Exception:  # noqa: BLE001  no error is legal, so each is told
            errors.append(traceback.format_exc())
    print(json.dumps({"asked": asked, "rows": rows, "errors": errors}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
