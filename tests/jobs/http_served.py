"""The HTTP server in a thread of the tests, and a client that sends what it is told, also what is no HTTP."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pyarrow as pa
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tidemark import query, stream, warehouse
from tidemark.jobs.serve.app import Served
from tidemark.jobs.serve.metrics import Metrics
from tidemark.jobs.serve.question_queue import QuestionQueue
from tidemark.jobs.serve.start import listening, server_of
from tidemark.jobs.serve.tokens import Tokens, all_rights

TOKEN = "the-token-of-the-tests"  # noqa: S105  it opens nothing else
JSON = {"content-type": "application/json"}


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass
class Site:
    """A running server: `queue` is where it answers."""

    port: int
    queue: QuestionQueue
    secure: ssl.SSLContext | None = None
    replies: list[Reply] = field(default_factory=list)

    def get(self, path: str, token: str | None = TOKEN, method: str = "GET", **headers: str) -> Reply:
        return self.ask(method, path, None, _authorized(token, headers))

    def post(self, path: str, body: Any, token: str | None = TOKEN, **headers: str) -> Reply:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.ask("POST", path, data, {**JSON, **_authorized(token, headers)})

    def ask(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Reply:
        one: http.client.HTTPConnection = (
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            if self.secure is None
            else http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=self.secure)
        )
        try:
            one.request(method, path, body, dict(headers))
            got = one.getresponse()
            reply = Reply(got.status, {k.lower(): v for k, v in got.getheaders()}, got.read().decode())
        finally:
            one.close()
        self.replies.append(reply)
        return reply

    def raw(self, data: bytes, *, finish: bool = True) -> bytes:
        """What the server says to these bytes until it closes the connection; b"" for nothing."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as one:
            with suppress(OSError):  # the server may close before all was sent
                one.sendall(data)
                if finish:
                    one.shutdown(socket.SHUT_WR)
            said = b""
            with suppress(OSError):
                while part := one.recv(65536):
                    said += part
            return said


def _authorized(token: str | None, headers: Mapping[str, str]) -> dict[str, str]:
    own = {} if token is None else {"authorization": f"Bearer {token}"}
    return {**own, **{name.replace("_", "-"): value for name, value in headers.items()}}


@contextmanager
def serving(
    warehouses: Mapping[str, query.Warehouse],
    tokens: Tokens | None = None,
    *,
    queue: QuestionQueue | None = None,
    origins: tuple[str, ...] = (),
    certificate: tuple[Path, Path] | None = None,
    send_bytes: int | None = None,
) -> Iterator[Site]:
    """A server on a free port until the end of the block; its kernel holds so many bytes of an answer."""
    queue = queue or QuestionQueue(parallel=2, waiting=8, seconds=60)
    metrics = Metrics(warehouses)
    served = Served(warehouses, tokens or Tokens([all_rights("tests", TOKEN)]), queue, metrics)
    app = served.application(["localhost", "127.0.0.1", "[::1]"], origins)
    stopping, files = threading.Event(), map(str, certificate or ())
    server = server_of(app, stopping, *files)
    with listening("127.0.0.1", 0) as door:
        if send_bytes is not None:  # connections inherit it
            door.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[door])))
        thread.start()
        try:
            secure = None if certificate is None else ssl.create_default_context(cafile=certificate[0])
            yield Site(door.getsockname()[1], queue, secure)
        finally:
            stopping.set()
            thread.join()
            queue.close()
            metrics.close()


def certificate_of_here(folder: Path) -> tuple[Path, Path]:
    """A certificate of localhost that signs itself, and its key."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name.from_rfc4514_string("CN=localhost")
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2040, 1, 1, tzinfo=UTC))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, secret = folder / "site.crt", folder / "site.key"
    pem.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return pem, secret


NAMES = ("ATL", "SEA", "<img src=x onerror=alert(1)>", "a\x00b\x1b[31m\u202e", "x" * 2**20, "漢,字")


def small_world(folder: Path) -> str:
    """A warehouse with every kind of column at its ends: 60 rows loaded and 40 that streamed in."""
    return fill(str(folder / "w"))


def fill(uri: str, storage_options: dict[str, str] | None = None) -> str:
    """That warehouse at an address; returns the address."""
    rows = pa.table(
        {
            "time": pa.array([1_000_000_000 + 3_600 * i for i in range(100)], pa.timestamp("s", "UTC")),
            "ms": pa.array([float("nan") if i % 25 == 0 else i / 7 for i in range(99)] + [float("inf")]),
            "big": pa.array([2**62 + i for i in range(99)] + [None], pa.int64()),
            "price": pa.array([f"{i}.{i % 100:02}" for i in range(100)]).cast(pa.decimal128(12, 2)),
            "at": pa.array([1_000_000 * i + 1 for i in range(100)], pa.timestamp("us", "UTC")),
            "name": pa.array([NAMES[i % len(NAMES)] for i in range(100)]),
            "site": pa.array([["eu", "us", "ap"][i % 3] for i in range(100)]),
        }
    )
    warehouse.create(
        None,
        uri,
        measures=["ms", "big", "price", "at"],
        keys=["name", ["site", "name"], "big"],
        groups=["site"],
        time="time",
        tick="1 hour",
        schema=rows.schema,
        storage_options=storage_options,
    )
    warehouse.load(None, uri, rows.slice(0, 60), batch="first", storage_options=storage_options)
    stream.append(None, uri, rows.slice(60), source="web", batch=0, storage_options=storage_options)
    return uri
