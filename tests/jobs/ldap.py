"""A directory that knows one name: as much of LDAP as a login needs."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SUCCESS, INVALID_CREDENTIALS = 0, 49
BIND = 0x60


@contextmanager
def directory(name: str, password: str) -> Iterator[int]:
    """The port of this machine that it listens at until the end of the block."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while (message := _element(self.rfile.read)) is not None:
                number, request = _elements(message[1])[:2]
                if request[0] != BIND:
                    return
                _, bound, given = _elements(request[1])[:3]
                right = (bound[1].decode(), given[1].decode()) == (name, password)
                result = bytes([0x0A, 1, SUCCESS if right else INVALID_CREDENTIALS, 4, 0, 4, 0])
                answer = bytes([2, len(number[1]), *number[1], 0x61, len(result), *result])
                self.wfile.write(bytes([0x30, len(answer), *answer]))

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def _element(read: object) -> tuple[int, bytes] | None:
    """A tag and its bytes (BER); None at the end."""
    assert callable(read)
    head = read(2)
    if len(head) < 2:
        return None
    tag, length = head
    if length & 0x80:
        length = int.from_bytes(read(length & 0x7F), "big")
    return tag, read(length)


def _elements(content: bytes) -> list[tuple[int, bytes]]:
    """All elements of a sequence."""
    found, at = [], 0

    def read(count: int) -> bytes:
        nonlocal at
        at += count
        return content[at - count : at]

    while (one := _element(read)) is not None:
        found.append(one)
    return found
