"""Uploads of a file while it is still being written.

The stream of delta-rs collects a part of 5 MB and uploads it before the next write returns. Here a thread of
its own writes to that stream, so the parts go up while the caller encodes the next rows.
"""

from __future__ import annotations

import io
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

PIECE_BYTES = 2**22
_PIECES = 4  # that wait at most; then the caller waits


class WriteBehind(io.RawIOBase):
    """A file that writes to another one in a thread; its error is raised by a later write or by close."""

    def __init__(self, file: Any) -> None:
        super().__init__()
        self._file = file
        self._piece = bytearray()
        self._thread = ThreadPoolExecutor(1, "tidemark-upload")
        self._waiting: deque[Future[Any]] = deque()

    def write(self, content: Any) -> int:
        """Takes the bytes."""
        self._piece += content
        if len(self._piece) >= PIECE_BYTES:
            self._send()
        return len(content)

    def _send(self) -> None:
        while len(self._waiting) >= _PIECES:
            self._waiting.popleft().result()
        self._waiting.append(self._thread.submit(self._file.write, bytes(self._piece)))
        self._piece.clear()

    def writable(self) -> bool:
        """Yes."""
        return True

    def close(self) -> None:
        """Writes the rest and closes the file; raises the first error of any write."""
        if self.closed:
            return
        try:
            if self._piece:
                self._send()
            for future in self._waiting:
                future.result()
            self._file.close()
        finally:
            self._thread.shutdown(cancel_futures=True)
            super().close()
