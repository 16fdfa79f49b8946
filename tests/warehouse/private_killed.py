"""A process that loads a batch into the warehouse with private columns, and is killed at a point of it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.warehouse.private_world import rows
from tidemark import warehouse
from tidemark.warehouse import Tuning
from tidemark.warehouse.ingest import private_rows
from tidemark.warehouse.private.secrets import Secret

TINY = Tuning(group_rows=64, block_rows=32, file_rows=(64, 256), slice_rows=256, sort_rows=128)
TOKENS = "tokens"  # the point where the tokens of the first rows were made


def main(uri: str, point: str, first: int) -> None:
    """Loads the rows from `first` on, a batch of that name."""

    def reached(name: str) -> None:
        if name == point:
            os.kill(os.getpid(), signal.SIGKILL)

    made = private_rows.token_column

    def token_column(secret: Secret, values: Any) -> Any:
        found = made(secret, values)
        reached(TOKENS)
        return found

    private_rows.token_column = token_column
    warehouse.load(None, Path(uri), rows(first, 400), f"b{first}", tuning=TINY, progress=reached)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
