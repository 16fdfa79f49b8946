"""Clients that ask a server on this machine over HTTP, each one question after the other.

    python -m bench.sites.clients < asked.json

asked.json has `port`, `token`, `paths` (of each client those that it asks in turn), `seconds` for which it
asks, and optionally `beside`, the path that one more client asks meanwhile and that is not counted. The last
line on stdout is a JSON object: `seconds`, `taken` (of each question), and `bytes` of the answers' bodies. It
is a process of its own, so that it takes no time from the server's.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any


@dataclass(slots=True)
class Told:
    """What was measured."""

    taken: list[float] = field(default_factory=list)
    bytes: int = 0


class Client:
    """A connection that stays open."""

    def __init__(self, port: int, token: str) -> None:
        self._port, self._head = port, f"host: 127.0.0.1\r\nauthorization: Bearer {token}\r\n\r\n"

    async def open(self) -> None:
        """Connects."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def ask(self, path: str) -> bytes:
        """The body of the answer; AssertionError unless the status is 200."""
        self._writer.write(f"GET {path} HTTP/1.1\r\n{self._head}".encode())
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        (length,) = (
            line.partition(":")[2] for line in head.splitlines() if line.lower().startswith("content-length:")
        )
        body = await self._reader.readexactly(int(length))
        assert head.split(" ", 2)[1] == "200", body
        return body

    async def ask_until(self, paths: Sequence[str], end: float, told: Told) -> None:
        """Asks until a moment of `time.monotonic`, at least once."""
        for path in cycle(paths):
            began = time.monotonic()
            told.bytes += len(await self.ask(path))
            told.taken.append(time.monotonic() - began)
            if time.monotonic() >= end:
                return


async def run(asked: dict[str, Any]) -> dict[str, Any]:
    """Asks, and returns what was measured."""
    clients = [Client(asked["port"], asked["token"]) for _ in asked["paths"]]
    for client in clients:
        await client.open()
    told, began = Told(), time.monotonic()
    asking = [
        client.ask_until(paths, began + asked["seconds"], told)
        for client, paths in zip(clients, asked["paths"], strict=True)
    ]
    beside = None
    if asked.get("beside"):
        other = Client(asked["port"], asked["token"])
        await other.open()
        beside = asyncio.ensure_future(other.ask_until([asked["beside"]], began + asked["seconds"], Told()))
    await asyncio.gather(*asking)
    seconds = time.monotonic() - began
    if beside is not None:
        await beside
    return {"seconds": seconds, "taken": told.taken, "bytes": told.bytes}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(json.load(sys.stdin)))))
