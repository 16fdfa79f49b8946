"""Limits of what a connection may cost before its request has arrived.

* The head of a request must be there HEAD_SECONDS after its first byte, that of the first request
  HEAD_SECONDS after the connection began. Otherwise the connection is closed.
* At most MOST_WAITING connections wait for the head of their first request, and before it for the end of the
  TLS handshake; one more closes the oldest.
* At most MOST connections are open; one more is closed at once.
* A connection whose client takes nothing of its answer for SEND_SECONDS is closed. Linux counts what the
  other side has acknowledged. Elsewhere bytes count as taken once asyncio has passed them on: as many as the
  kernel has room for, but over TLS about 64 KiB at once. The last part of an answer over TLS, at most about
  80 KiB, is not covered, since asyncio does not tell whether it has gone. It is given up with its connection:
  KEEP_SECONDS after the last piece was written uvicorn begins to close it, and 30 seconds later asyncio ends
  that.
* A connection whose request had no valid token is closed after the answer (hosts.py).

So clients without a token cannot keep others out by holding connections open. The size and the time of bodies
are limited in app.py.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections import OrderedDict
from contextlib import suppress
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
SEND_SECONDS = 60.0
KEEP_SECONDS = 15
HEAD_BYTES = 2**16
MOST_WAITING = 128
MOST = 1024
_ACKNOWLEDGED_AT = 120  # tcpi_bytes_acked, 8 bytes, in Linux's struct tcp_info

_waiting: OrderedDict[int, socket.socket] = OrderedDict()  # without a first request, by number, oldest first


def _acknowledged(one: socket.socket) -> int:
    """How many bytes the other side has acknowledged so far; 0 where the kernel does not tell."""
    if not hasattr(socket, "TCP_INFO"):
        return 0
    told = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKNOWLEDGED_AT + 8)
    return int.from_bytes(told[_ACKNOWLEDGED_AT:], sys.byteorder)


class Door(socket.socket):
    """A socket that listens: a connection waits from its beginning on."""

    most_waiting = MOST_WAITING

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection."""
        one, address = super().accept()
        for number, other in list(_waiting.items()):
            if other.fileno() == -1:  # it ended before its handshake did
                _waiting.pop(number, None)
        _waiting[one.fileno()] = one
        if len(_waiting) > self.most_waiting:
            _, oldest = _waiting.popitem(last=False)
            with suppress(OSError):  # the client has gone
                oldest.shutdown(socket.SHUT_RDWR)
        return one, address


class GuardedProtocol(H11Protocol):
    """A connection, as uvicorn makes one for each client."""

    head_seconds, send_seconds = HEAD_SECONDS, SEND_SECONDS
    most = MOST
    _timer: asyncio.TimerHandle | None = None
    _sending: asyncio.TimerHandle | None = None
    _socket: Any = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client came."""
        super().connection_made(transport)
        self._socket = transport.get_extra_info("socket")
        if len(self.connections) > self.most:
            transport.abort()
            return
        # `pause_writing` comes as soon as anything is left: TLS means "as much as", TCP "more than".
        transport.set_write_buffer_limits(high=1 if self.scheme == "https" else 0)
        self._start()

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        if self._waits_for_head() and self._timer is None:
            self._start()
        super().data_received(data)
        if not self._waits_for_head():
            self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection ended."""
        self._stop()
        self._sent()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client takes less than is sent."""
        super().pause_writing()
        self._look_whether_taken(None)

    def resume_writing(self) -> None:
        """The client has taken it."""
        self._sent()
        super().resume_writing()

    def _look_whether_taken(self, before: int | None) -> None:
        """Closes the connection if no more is taken than SEND_SECONDS before."""
        taken = self._taken()
        if before is not None and taken <= before:
            # At once: else the kernel would go on to offer the part of the answer that it has taken.
            at_once = struct.pack("ii", 1, 0)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
            cast("Any", self.transport).abort()
            return
        self._sending = self.loop.call_later(self.send_seconds, self._look_whether_taken, taken)

    def _taken(self) -> int:
        """A number that grows when the client takes a part of its answer, while nothing more is written."""
        return _acknowledged(self._socket) - int(cast("Any", self.transport).get_write_buffer_size())

    def _sent(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    def _waits_for_head(self) -> bool:
        return bool(self.conn.their_state is h11.IDLE)

    def _start(self) -> None:
        self._timer = self.loop.call_later(self.head_seconds, self._late)

    def _stop(self) -> None:
        _waiting.pop(self._socket.fileno(), None)  # -1 once it is closed: another one may have its number
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        if self._waits_for_head() and not self.transport.is_closing():
            cast("Any", self.transport).abort()
