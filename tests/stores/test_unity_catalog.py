"""The example of the page on object stores finds a volume by its name, over Unity Catalog's REST API."""

from __future__ import annotations

import json
import threading
import urllib.error
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.docs.pages import DOCS, blocks
from tests.stores.conftest import Place
from tests.stores.gate import WRITES, Fault
from tests.stores.rows import HOW, check, rows
from tidemark import query, stream, warehouse
from tidemark.warehouse.errors import StoreUnavailable

PAGE = DOCS / "guides" / "object_stores.md"
NAME, TOKEN = "main.sales.flights", "token-of-the-caller"
# The name of the access key that an operation is given.
USERS = {"READ_VOLUME": "READER", "WRITE_VOLUME": "WRITER"}


@contextmanager
def unity_server(place: Place) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A server with one volume, the place: its address, and what was asked of it.

    Its endpoints and fields are those of Unity Catalog's REST API, `GET /volumes/{full name}` and
    `POST /temporary-volume-credentials`.
    """
    volume = {
        "catalog_name": "main",
        "schema_name": "sales",
        "name": "flights",
        "full_name": NAME,
        "volume_id": str(uuid.uuid4()),
        "volume_type": "EXTERNAL",
        "storage_location": place.uri,
    }
    asked: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(volume if self._allowed(f"/volumes/{NAME}") else None)

        def do_POST(self) -> None:
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            known = self._allowed("/temporary-volume-credentials")
            if not known or set(given) != {"volume_id", "operation"} or given["operation"] not in USERS:
                return self._answer(None)
            assert given["volume_id"] == volume["volume_id"]
            keys = {
                "access_key_id": USERS[given["operation"]],
                "secret_access_key": "not-a-secret",
                "session_token": "a-session",
            }
            return self._answer({"aws_temp_credentials": keys, "expiration_time": 4_102_444_800_000})

        def _allowed(self, path: str) -> bool:
            asked.append((self.command, self.path))
            whole = "/api/2.1/unity-catalog" + path
            return self.path == whole and self.headers["Authorization"] == f"Bearer {TOKEN}"

        def _answer(self, facts: dict[str, Any] | None) -> None:
            body = json.dumps(facts or {"error_code": "NOT_FOUND", "message": "not found"}).encode()
            self.send_response(200 if facts else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Prints nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/api/2.1/unity-catalog", asked
        server.shutdown()


def example() -> str:
    """The block of the page, without its two calls."""
    (text,) = [block.text for block in blocks(PAGE) if "def unity(" in block.text]
    head, calls = text.split("\n\n\nwarehouse.use_catalog(unity)\n")
    assert calls.startswith("warehouse.use_catalog(None)")
    return head


def test_the_example_of_the_page(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP", "AWS_REGION"):
        monkeypatch.setenv(name, place.options[name])
    monkeypatch.setenv("UNITY_TOKEN", TOKEN)
    names: dict[str, Any] = {}
    exec(compile(example(), str(PAGE), "exec"), names)  # noqa: S102  the page is ours
    assert names["SERVER"].endswith("/api/2.1/unity-catalog")
    try:
        warehouse.use_catalog(names["unity"])
        with unity_server(place) as (names["SERVER"], asked):
            place.server.set(Fault("403", WRITES, user="READER"))
            warehouse.create(None, NAME, ["ms"], **HOW)
            assert asked == [
                ("GET", f"/api/2.1/unity-catalog/volumes/{NAME}"),
                ("POST", "/api/2.1/unity-catalog/temporary-volume-credentials"),
            ]
            warehouse.load(None, NAME, rows(0), "night-0")
            stream.append(None, NAME, rows(1), source="web", batch=0)
            names["OPERATION"] = "READ_VOLUME"
            check(query.open(NAME), [rows(0), rows(1)])
            with pytest.raises(StoreUnavailable, match="not allowed"):
                warehouse.load(None, NAME, rows(2), "night-2")
            for name, token in (("main.sales.others", TOKEN), (NAME, "another")):
                monkeypatch.setenv("UNITY_TOKEN", token)
                with pytest.raises(urllib.error.HTTPError, match="404"):
                    query.open(name)
    finally:
        warehouse.use_catalog(None)
    check(query.open(place.uri, place.options), [rows(0), rows(1)])
