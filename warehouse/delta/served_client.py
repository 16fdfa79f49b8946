"""One request to `tidemark serve`, by a client that trusts neither the network nor the server.

* The token goes to the one origin that it was given for. No answer leads to another address: redirects are
  errors. TLS certificates are verified.
* A request ends after `seconds` altogether, even if the server sends a byte from time to time, and after as
many bytes as an answer may have.
* A request that a server did not answer, or could not answer at the moment, is made again a few times. All
requests only read.

What a server says in an error is shown shortened. The token is in no error, log or repr.
"""

from __future__ import annotations

import http.client
import io
import json
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tidemark.warehouse.delta.retries import PATIENCE
from tidemark.warehouse.delta.served_ranges import VERSION, VERSION_HEADER
from tidemark.warehouse.errors import InputError, NotAWarehouse, StoreUnavailable, shortened

SECONDS = 60.0  # of a request, unless an option says otherwise
TRIES = 4
LONGEST_WAIT = 5.0  # that a server can ask for between two tries
OPTIONS = ("token", "certificate", "timeout")
_HEAD_BYTES = 2**16  # of the answer, and of an error
_FOR_THE_MOMENT = {429, 502, 503, 504}
_COMES_BACK = (
    "Run the same again when the server is there; an object store has the form s3://bucket/folder, and its "
    "endpoint in the storage options"
)
_DENIED = {
    401: "Give a token that counts: storage_options={'token': ...}, or TIDEMARK_TOKENS",
    403: "Ask for a token with the right `files` in this warehouse, and for this name of the server",
}


class _Failed(Exception):
    """A request that is made again, after `wait` seconds if the server asked for that."""

    def __init__(self, text: str, wait: float | None = None) -> None:
        super().__init__(text)
        self.wait = wait


@dataclass(frozen=True, slots=True)
class ServedAddress:
    """The address of a warehouse that is served: `origin` as scheme://host:port, the path before its name."""

    origin: str
    host: str
    port: int
    prefix: str
    warehouse: str

    @classmethod
    def of(cls, uri: str) -> ServedAddress:
        """The parts of an address that addresses.py has checked."""
        parts = urlsplit(uri)
        prefix, _, warehouse = parts.path.rpartition("/")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return cls(f"{parts.scheme}://{parts.netloc}", parts.hostname or "", port, prefix, warehouse)


@dataclass(slots=True)
class ServedClient:
    """Requests about one warehouse of a server. Safe to share between threads."""

    address: ServedAddress
    seconds: float
    _token: str | None = field(repr=False)
    _secure: ssl.SSLContext | None
    _idle: list[_Connection] = field(default_factory=list, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @classmethod
    def at(cls, uri: str, options: Mapping[str, str]) -> ServedClient:
        """The client of an address; InputError for options that it does not have."""
        address = ServedAddress.of(uri)
        if unknown := sorted(options.keys() - set(OPTIONS)):
            raise InputError(
                f"{address.origin} is a server, for which storage_options has no {shortened(unknown[0])}. "
                f"It has: {', '.join(OPTIONS)}."
            )
        token = options.get("token")
        if token is not None and not (
            token.isascii() and token.isprintable() and token.strip() == token != ""
        ):
            raise InputError("the token of storage_options is no token: expected letters, digits, - and _.")
        secure = _verifying(options.get("certificate")) if uri.startswith("https://") else None
        return cls(address, _seconds(options.get("timeout")), token, secure)

    def post(self, path: str, body: Mapping[str, Any], most: int) -> bytes:
        """The bytes that answer a question about the warehouse, at most `most`.

        StoreUnavailable if the server does not answer as servers of this version do; InputError and
        NotAWarehouse if the server answers with such an error.
        """
        content = json.dumps({"warehouse": self.address.warehouse, **body}).encode()
        tries = PATIENCE.begin(TRIES)
        while True:
            try:
                return self._once(path, content, most)
            except _Failed as error:
                if not tries.again(None if error.wait is None else min(error.wait, LONGEST_WAIT)):
                    raise self._unavailable(f"{error}, {tries.failed} times", _COMES_BACK) from None

    def _once(self, path: str, content: bytes, most: int) -> bytes:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is not None:
            try:
                return self._asked(connection, path, content, most)
            except _Failed:  # the server may have closed it since: only a new one tells whether it answers
                if not connection.was_closed:
                    raise
        return self._asked(_Connection(self), path, content, most)

    def _asked(self, connection: _Connection, path: str, content: bytes, most: int) -> bytes:
        try:
            status, headers, body = connection.ask(
                f"{self.address.prefix}/{path}", content, self._headers, most
            )
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            if isinstance(error, ssl.SSLCertVerificationError):
                raise self._unavailable(
                    f"its certificate is not valid for it ({error.verify_message})",
                    "Give the file of its authority: storage_options={'certificate': ...}",
                ) from None
            told = getattr(error, "strerror", None) or str(error) or "it closed the connection"
            raise _Failed(f"did not answer ({shortened(told)[1:-1]})") from None
        except BaseException:
            connection.close()
            raise
        if connection.is_open:
            with self._lock:
                self._idle.append(connection)
        if status == 200 and headers.get(VERSION_HEADER) == VERSION:
            return body
        raise self._error(status, headers, body)

    @property
    def _headers(self) -> dict[str, str]:
        token = {} if self._token is None else {"authorization": f"Bearer {self._token}"}
        return {"content-type": "application/json", "accept-encoding": "identity", **token}

    def _error(self, status: int, headers: Mapping[str, str], body: bytes) -> Exception:
        """The error for an answer with another status than a right answer has."""
        kind, message = _told(body)
        said = f"{status}{f' ({message})' if message else ''}"
        if status in _FOR_THE_MOMENT or (status, kind) == (422, "TimeLimitReached"):
            wait = headers.get("retry-after", "")
            is_wait = wait.isdecimal() and len(wait) <= len("999")
            return _Failed(f"answered {said}", float(wait) if is_wait else None)
        if status in _DENIED:
            return self._unavailable(f"refuses, with {said}", _DENIED[status])
        if status in range(300, 400):
            return self._unavailable(
                f"answers {status}, which leads elsewhere, and a token goes nowhere else",
                "Give the address at which the warehouse is served",
            )
        if (status, kind) == (400, "InputError"):
            return InputError(f"{self._name} cannot be read: {message}.")
        if status in {200, 404}:
            version = shortened(headers.get(VERSION_HEADER, "none"))
            return NotAWarehouse(
                f"{self._name} is no warehouse of a server that this version of tidemark can read: it "
                f"answered {status}, and its version of answers is {version}, expected {VERSION!r}. Check "
                "the address, and use the same version of tidemark at both ends."
            )
        return self._unavailable(f"answered {said}", "Its log says why")

    def bad(self, why: str) -> StoreUnavailable:
        """The error for an answer that is not what it must be."""
        return self._unavailable(
            f"sent an answer that is not valid: {why}", "Use the same version of tidemark at both ends"
        )

    def _unavailable(self, what: str, remedy: str) -> StoreUnavailable:
        return StoreUnavailable(f"the server of {self._name} {what}. {remedy}.")

    @property
    def _name(self) -> str:
        return f"{self.address.origin}{self.address.prefix}/{self.address.warehouse}"


class _Connection:
    """A connection to a server, for one request after the other."""

    def __init__(self, client: ServedClient) -> None:
        address, self._seconds = client.address, client.seconds
        self.was_closed = self.is_open = False
        self._bounded: Any = None
        self._http: http.client.HTTPConnection
        if client._secure is None:  # noqa: SLF001  a class of this module
            self._http = http.client.HTTPConnection(address.host, address.port, timeout=client.seconds)
        else:
            self._http = http.client.HTTPSConnection(
                address.host,
                address.port,
                timeout=client.seconds,
                context=client._secure,  # noqa: SLF001
            )

    def ask(
        self, path: str, content: bytes, headers: Mapping[str, str], most: int
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the answer; OSError and HTTPException where there is none."""
        self.is_open, end = False, time.monotonic() + self._seconds
        if self._http.sock is None:
            self._http.connect()
            connected: Any = self._http.sock
            self._http.sock = self._bounded = _Bounded(connected)  # what http.client uses of a socket
        self._bounded.end, self._bounded.left = end, most + _HEAD_BYTES
        self.was_closed = True  # until the first byte of an answer is there
        self._http.request("POST", path, content, dict(headers))
        got = self._http.getresponse()
        self.was_closed = False
        with got:
            if got.headers.get("content-encoding", "identity") != "identity":
                raise http.client.HTTPException("it sent an encoding that was not asked for")
            if got.length is None or got.length > (most if got.status == 200 else _HEAD_BYTES):
                raise http.client.HTTPException("it does not say a length that its answer may have")
            body = got.read()  # IncompleteRead if it is shorter
        self.is_open = self._http.sock is not None
        return got.status, {name.lower(): value for name, value in got.getheaders()}, body

    def close(self) -> None:
        self.is_open = False
        self._http.close()


class _Bounded:
    """A socket that waits until `end`, and reads `left` bytes at most; what http.client uses of a socket.

    It ends once it and all of its files are closed: http.client closes the socket of a server that will close
    the connection before it has read the answer.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._users = 1
        self.end, self.left = 0.0, 0

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(self._rest())
        self._sock.sendall(data)

    def makefile(self, *_: object) -> io.BufferedReader:
        self._users += 1
        return io.BufferedReader(_Reads(self))

    def read_into(self, buffer: Any) -> int:
        self._sock.settimeout(self._rest())
        count = self._sock.recv_into(buffer)
        self.left -= count
        if self.left < 0:
            raise OSError("it sent more bytes than an answer has")
        return count

    def close(self) -> None:
        """Closes it, or one of its files; each once."""
        self._users -= 1
        if self._users == 0:
            self._sock.close()

    def _rest(self) -> float:
        rest = self.end - time.monotonic()
        if rest <= 0:
            raise TimeoutError("the time for an answer is over")
        return rest


class _Reads(io.RawIOBase):
    def __init__(self, bounded: _Bounded) -> None:
        self._bounded = bounded

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._bounded.close()

    def readinto(self, buffer: Any) -> int:
        return self._bounded.read_into(buffer)


def _told(body: bytes) -> tuple[str, str]:
    """The kind and the message of an error of a server, as text that is safe to show; "" for none."""
    try:
        document: Any = json.loads(body)
        kind, message = document["error"], document["message"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return "", ""
    if not isinstance(kind, str) or not isinstance(message, str):
        return "", ""
    text = "".join(one if one.isprintable() else " " for one in message[:300])
    return kind, text.rstrip(". ")


def _verifying(certificate: str | None) -> ssl.SSLContext:
    """The context that verifies certificates of servers, by the system's authorities or those of a file."""
    try:
        secure = ssl.create_default_context(cafile=certificate)
        secure.hostname_checks_common_name = False  # names of servers are in a field of their own
        return secure
    except (OSError, ssl.SSLError) as error:
        raise InputError(
            f"the certificate {shortened(certificate)} of storage_options cannot be used: {error}. Give a "
            "file of certificates in PEM."
        ) from None


def _seconds(text: str | None) -> float:
    if text is None:
        return SECONDS
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 3_600:
        raise InputError(f"timeout of storage_options must be seconds up to an hour, got {shortened(text)}.")
    return seconds
