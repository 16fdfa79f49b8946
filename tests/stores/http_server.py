"""A small HTTP/1.1 server for WSGI applications of tests, a thread for each connection.

Connections stay open, as those of real stores do: a client that connects anew for each request, and a server
that starts a thread for it, take more of the processor than the request. A body is read whole before the
application is called, so that nothing of it is left for the next request. An application that raises
ConnectionError has its connection closed in the middle, without an answer.
"""

from __future__ import annotations

import io
import socketserver
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from urllib.parse import unquote_to_bytes

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

_LONGEST_LINE = 2**16


class HTTPServer(socketserver.ThreadingTCPServer):
    """Serves an application on a free port of 127.0.0.1."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, app: App) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.app = app

    def shutdown_request(self, request: Any) -> None:
        """Closes the socket alone: a shutdown before would make an orderly end of a reset."""
        self.close_request(request)

    def handle_error(self, *_: Any) -> None:
        """Prints nothing where the client has gone."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            traceback.print_exc()


class _Connection(socketserver.StreamRequestHandler):
    server: HTTPServer
    disable_nagle_algorithm = True  # else an answer of two writes waits 40 ms for an acknowledgement

    def handle(self) -> None:
        with suppress(ConnectionError):
            while self._answer_one():
                pass

    def _answer_one(self) -> bool:
        """Whether a further request may come."""
        words = self.rfile.readline(_LONGEST_LINE).decode("latin-1").split()
        if len(words) != 3:
            return False
        environ = self._environ(*words)
        self._respond(environ)
        return "close" not in environ.get("HTTP_CONNECTION", "").lower()

    def _environ(self, method: str, target: str, version: str) -> dict[str, Any]:
        path, _, query = target.partition("?")
        environ: dict[str, Any] = {
            "REQUEST_METHOD": method,
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
            "QUERY_STRING": query,
            "RAW_URI": target,
            "REQUEST_URI": target,
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": str(self.server.server_address[1]),
            "SERVER_PROTOCOL": version,
            "REMOTE_ADDR": self.client_address[0],
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
            "tests.socket": self.connection,
        }
        while (line := self.rfile.readline(_LONGEST_LINE)) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            key = name.upper().replace("-", "_")
            environ[key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"] = value.strip()
        if environ.get("HTTP_EXPECT", "").lower() == "100-continue":
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if "chunked" in environ.pop("HTTP_TRANSFER_ENCODING", "").lower():
            body = b"".join(iter(self._chunk, b""))
            environ["CONTENT_LENGTH"] = str(len(body))
        else:
            body = self.rfile.read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        return environ

    def _chunk(self) -> bytes:
        """The next part of a body that comes in chunks; empty after the last."""
        chunk = self.rfile.read(int(self.rfile.readline(_LONGEST_LINE).partition(b";")[0], 16))
        self.rfile.readline(_LONGEST_LINE)
        return chunk

    def _respond(self, environ: dict[str, Any]) -> None:
        told: list[Any] = []
        try:
            parts = self.server.app(environ, lambda status, headers, *_: told.extend((status, headers)))
        except ConnectionError:
            raise
        except Exception:  # noqa: BLE001  the test that asked gets the answer, the log the reason
            traceback.print_exc()
            parts, told = [b""], ["500 INTERNAL SERVER ERROR", []]
        status, headers = told[:2]
        without_body = environ["REQUEST_METHOD"] == "HEAD" or status[:3] in ("204", "304")
        if not without_body and not any(name.lower() == "content-length" for name, _ in headers):
            parts = [b"".join(parts)]
            headers = [*headers, ("Content-Length", str(len(parts[0])))]
        lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers), "", ""]
        waiting = "\r\n".join(lines).encode("latin-1")
        for part in () if without_body else parts:
            self.wfile.write(waiting + part)
            waiting = b""
        if waiting:
            self.wfile.write(waiting)
