"""An S3 server for tests: moto's, behind a gate, in a process of its own on a free port of this machine.

    with running() as server:
        warehouse.create(None, server.address("w"), ["x"], storage_options=server.options)
        server.set(latency=0.025)

The gate is controlled, and folders are copied, through paths that no bucket can have.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.stores.gate import Fault, Gate, Request, Settings
from tests.stores.http_server import HTTPServer

BUCKET = "warehouses"
_CONTROL, _COPY = "/-/gate", "/-/copy"
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Server:
    """A running server: its URL and its process, and the storage options with which it is reached."""

    url: str
    process: int
    user: str = "WRITER"
    secret: str = field(default="not-a-secret", repr=False)

    @property
    def options(self) -> dict[str, str]:
        """The storage options of delta-rs."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "eu-central-1",
            "AWS_ACCESS_KEY_ID": self.user,
            "AWS_SECRET_ACCESS_KEY": self.secret,
        }

    def address(self, name: str) -> str:
        """The address of a folder in the bucket."""
        return f"s3://{BUCKET}/{name}"

    def set(self, *faults: Fault, latency: float = 0.0, ignores_conditions: bool = False) -> None:
        """Changes the behaviour of the gate, and forgets the requests of before."""
        settings = Settings(latency, ignores_conditions, faults)
        self._control(json.dumps(asdict(settings)).encode())

    def requests(self) -> list[Request]:
        """The requests since the last `set`, in the order in which they ended."""
        return [Request(**request) for request in json.loads(self._control())]

    def copy(self, old: str, new: str) -> None:
        """Copies all objects below an address below another one; no request of it is recorded."""
        folders = [uri.removeprefix(self.address("")) for uri in (old, new)]
        self._control(json.dumps(folders).encode(), _COPY)

    def _control(self, body: bytes | None = None, path: str = _CONTROL) -> bytes:
        with urllib.request.urlopen(self.url + path, body, timeout=60) as answer:  # noqa: S310  of this machine
            content: bytes = answer.read()
            return content


@contextmanager
def running() -> Iterator[Server]:
    """Starts a server with one empty bucket, and ends it."""
    command = [sys.executable, "-m", "tests.stores.server"]
    with subprocess.Popen(
        command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url, "the S3 server did not start"
        try:
            yield Server(url, process.pid)
        finally:
            process.terminate()


def _serve() -> None:
    """Serves until standard input ends: when the process that started it is gone, in whatever way."""
    # Here alone, because they take most of a second, and each process that collects tests has this module.
    from moto.moto_server.werkzeug_app import create_backend_app  # noqa: PLC0415
    from werkzeug.test import Client  # noqa: PLC0415

    from tests.stores.short_way import ShortWay  # noqa: PLC0415

    moto = create_backend_app("s3")  # moto's dispatcher of services lists a folder for each request
    made = Client(moto).put(f"/{BUCKET}")
    assert made.status_code == 200, made.data
    store = ShortWay(moto)
    gate = Gate(store)

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] not in (_CONTROL, _COPY):
            return gate(environ, start_response)
        start_response("200 OK", [("Content-Type", "application/json")])
        if environ["REQUEST_METHOD"] == "GET":
            return [json.dumps([asdict(request) for request in gate.requests]).encode()]
        given = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        if environ["PATH_INFO"] == _COPY:
            store.copy(BUCKET, *given)
            return [b"[]"]
        gate.set(Settings(**{**given, "faults": [Fault(**fault) for fault in given["faults"]]}))
        return [b"[]"]

    server = HTTPServer(app)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _serve()
