"""A gate in front of an S3 server delays, counts, breaks and refuses requests.

The gate is a WSGI application around the server's. A put with `If-None-Match` is made under a lock, because
moto checks the condition and stores the object in two steps. Each request is recorded with its beginning and
its end, from which tests count requests and rounds.
"""

from __future__ import annotations

import io
import random
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
Kind = Literal["500", "503", "403", "reset", "timeout", "lost", "stalled", "meet"]

WRITES = "PUT|POST|DELETE"
_ANSWERS = {
    "500": ("500 Internal Server Error", "InternalError"),
    "503": ("503 Slow Down", "SlowDown"),
    "403": ("403 Forbidden", "AccessDenied"),
}
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)  # do not linger
_SEED = 17


@dataclass(frozen=True)
class Fault:
    """What happens to the requests that match.

    kind     '500', '503', '403': an answer with that status. 'reset': the connection is reset, and nothing is
             done. 'timeout': nothing is done, and nothing is answered for `seconds`. 'lost': the request is
             done, and the connection is reset instead of the answer. 'stalled': half of the answer comes, and
             the rest after `seconds`. 'meet': it waits until `times` requests have come, at most `seconds`;
             then all are done
    method   a regular expression of the whole method
    path     a regular expression that is searched for in the path with the query
    user     the access key that signed the request; empty: any
    times    how many requests it happens to, at most; negative: no limit
    share    the share of the matching requests that it happens to, drawn at random
    """

    kind: Kind
    method: str = ".*"
    path: str = ""
    user: str = ""
    times: int = -1
    share: float = 1.0
    seconds: float = 5.0

    def matches(self, method: str, path: str, user: str) -> bool:
        """Whether it can happen to the request."""
        same_user = not self.user or self.user == user
        return same_user and bool(re.fullmatch(self.method, method) and re.search(self.path, path))


@dataclass(frozen=True)
class Settings:
    """How the gate behaves.

    latency             seconds that are added to each request
    ignores_conditions  whether `If-None-Match` is ignored, as by stores that do not know it
    faults              the first that matches a request happens to it
    """

    latency: float = 0.0
    ignores_conditions: bool = False
    faults: Sequence[Fault] = ()


@dataclass(frozen=True)
class Request:
    """A request that came through the gate; times are seconds of one clock.

    fault     its kind, or empty
    answered  the bytes of the answer's body; 0 for one that a fault cut
    """

    method: str
    path: str
    began: float
    ended: float
    fault: str = ""
    answered: int = 0


class Gate:
    """The WSGI application."""

    def __init__(self, server: App) -> None:
        self._server = server
        self._state, self._conditional_put = threading.Lock(), threading.Lock()
        self.set(Settings())

    def set(self, settings: Settings) -> None:
        """Changes the behaviour, and forgets the requests of before."""
        with self._state:
            self._settings = settings
            self._times = [fault.times for fault in settings.faults]
            self._meetings = {f: threading.Barrier(f.times) for f in settings.faults if f.kind == "meet"}
            self._random = random.Random(_SEED)
            self.requests: list[Request] = []

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        began = time.monotonic()
        # The rest of a body that nobody reads would be taken for the next request of the connection.
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        method, path = environ["REQUEST_METHOD"], environ["RAW_URI"]
        settings = self._settings
        fault = self._choose_fault(method, path, _user(environ))
        if settings.latency:
            time.sleep(settings.latency)
        answer: list[bytes] = []
        if fault is not None and fault.kind == "meet":
            with suppress(threading.BrokenBarrierError):  # nobody else came
                self._meetings[fault].wait(fault.seconds)
        if fault is None or fault.kind in ("meet", "stalled"):
            answer = self._forward(settings, environ, start_response)
        elif fault.kind == "lost":
            self._forward(settings, environ, lambda *_: None)
        elif fault.kind == "timeout":
            time.sleep(fault.seconds)
        with self._state:
            kind = "" if fault is None else fault.kind
            size = sum(map(len, answer))
            self.requests.append(Request(method, path, began, time.monotonic(), kind, size))
        if fault is not None and fault.kind == "stalled":
            return _stalled(b"".join(answer), fault.seconds)
        if fault is None or fault.kind == "meet":
            return answer
        if fault.kind not in _ANSWERS:
            environ["tests.socket"].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
            raise ConnectionResetError  # the server then closes the connection
        status, code = _ANSWERS[fault.kind]
        start_response(status, [("Content-Type", "application/xml")])
        return [f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()]

    def _choose_fault(self, method: str, path: str, user: str) -> Fault | None:
        with self._state:
            for i, fault in enumerate(self._settings.faults):
                if not self._times[i] or not fault.matches(method, path, user):
                    continue
                if self._random.random() < fault.share:
                    self._times[i] -= 1
                    return fault
        return None

    def _forward(
        self, settings: Settings, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> list[bytes]:
        """The server's answer, whole."""
        if settings.ignores_conditions:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        if "HTTP_IF_NONE_MATCH" not in environ:
            return list(self._server(environ, start_response))
        with self._conditional_put:
            return list(self._server(environ, start_response))


def _stalled(answer: bytes, seconds: float) -> Iterator[bytes]:
    half = len(answer) // 2
    yield answer[:half]
    time.sleep(seconds)
    yield answer[half:]


def _user(environ: dict[str, Any]) -> str:
    """The access key that signed the request."""
    signed = re.search("Credential=([^/]+)/", environ.get("HTTP_AUTHORIZATION", ""))
    return signed[1] if signed else ""


def rounds(requests: Iterable[Request]) -> int:
    """The length of the longest chain of requests in which each began after the one before it had ended."""
    chain_end, length = float("-inf"), 0
    for request in sorted(requests, key=lambda request: request.ended):
        if request.began >= chain_end:
            chain_end, length = request.ended, length + 1
    return length
