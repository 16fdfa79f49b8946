"""Logins byte by byte: what a client may send that no driver would."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

START, COMPLETE = 1, 5
IN, OUT = b"\x05", b"\x03"  # the first byte of the server's answer
SECONDS = 60  # each wait has an end


def message(status: int, content: bytes, announced: int | None = None) -> bytes:
    """A message of SASL; it may announce another length than it has."""
    length = len(content) if announced is None else announced
    return bytes([status]) + length.to_bytes(4, "big") + content


def login(user: str, password: str) -> bytes:
    """A whole login with a name and a password."""
    return message(START, b"PLAIN") + message(COMPLETE, f"\0{user}\0{password}".encode())


def answer(client: socket.socket, *, within: float = SECONDS) -> bytes | None:
    """The first byte that comes; empty if the server closed the connection, None if it waits for more."""
    client.settimeout(within)
    try:
        return client.recv(1)
    except TimeoutError:
        return None
    except ConnectionError:
        return b""


def told(port: int, *pieces: bytes, within: float = SECONDS) -> bytes | None:
    """The answer to a connection that sends the pieces."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        try:
            for piece in pieces:
                client.sendall(piece)
        except ConnectionError:
            return b""
        return answer(client, within=within)


@contextmanager
def silent(port: int, count: int) -> Iterator[list[socket.socket]]:
    """So many connections that send nothing."""
    with ExitStack() as opened:
        yield [opened.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(count)]
