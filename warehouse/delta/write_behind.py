"""Uploads of a file while it is still being written.

The stream of delta-rs collects a part of 5 MB and uploads it before the next write returns. Here a thread of
its own writes to that stream, so the parts go up while the caller encodes the next rows. Inside `uploading`
the caller does not wait for the end of an upload, either.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

PIECE_BYTES = 2**22
_PIECES = 4  # pieces that wait at most; then the caller waits

_uploads: ContextVar[list[Future[None]] | None] = ContextVar("_uploads", default=None)


@contextmanager
def uploading() -> Iterator[list[Future[None]]]:
    """Files that are closed inside may be on their way still; whoever needs them waits for these futures."""
    uploads: list[Future[None]] = []
    token = _uploads.set(uploads)
    try:
        yield uploads
    finally:
        _uploads.reset(token)


class WriteBehind(io.RawIOBase):
    """A file that writes to another one in a thread; its error is raised by a later write or by close.

    The other one gets pieces of at least PIECE_BYTES; only the last piece, if there is a rest, is smaller.
    """

    def __init__(self, file: Any) -> None:
        super().__init__()
        self._file = file  # used in the thread alone
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
        """Writes the rest and closes the file; raises the first error of any write, outside `uploading`."""
        if self.closed:
            return
        uploads = _uploads.get()
        try:
            if self._piece:
                self._send()
            finished = self._thread.submit(self._finish)
            if uploads is None:
                finished.result()
            else:
                uploads.append(finished)
        finally:
            self._thread.shutdown(wait=uploads is None)
            super().close()

    def _finish(self) -> None:
        for future in self._waiting:  # all are done: there is one thread
            future.result()
        self._file.close()
