"""Which requests are accepted, by Host and Origin, and the headers of all answers for browsers.

First of all, a request is refused if its Host was not named to the server, or if its Origin is neither the
own page nor one that was named to the server. So a page of another site cannot use a browser to ask, even if
it has a name that leads to this machine. There are no cookies: each request has a token.

After the answer to a request without a valid token the connection is closed (connections.py says why).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidemark.jobs.serve.responses import refusal

LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
POLICY = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
KNOWN = "tidemark.known"  # in the scope of a request that has a valid token
HEADERS: Mapping[str, str] = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


def host_name(text: str) -> str:
    """The name of a Host header or address without the port, in the form in which names are compared."""
    name, colon, port = text.strip().lower().rpartition(":")
    bare = name if colon and port.isdecimal() and (name.endswith("]") or ":" not in name) else text.strip()
    bare = bare.lower().rstrip(".")
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        return bare
    return f"[{address}]" if address.version == 6 else str(address)


def checked(app: ASGIApp, hosts: Iterable[str], origins: Iterable[str]) -> ASGIApp:
    """The application behind a check of Host and Origin, which sets the headers of all answers, too.

    hosts: the names that a request may have as Host, without ports. origins: Origins of other pages.
    """
    names, others = frozenset(map(host_name, hosts)), frozenset(one.rstrip("/") for one in origins)

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if KNOWN not in scope:
                    headers["connection"] = "close"
            await send(message)

        problem = _problem(Headers(scope=scope), names, others)
        answered = app if problem is None else refusal(403, "Refused", problem)
        await answered(scope, receive, with_headers)

    return run


def _problem(headers: Headers, names: Collection[str], others: Collection[str]) -> str | None:
    hosts, origins = headers.getlist("host"), headers.getlist("origin")
    if len(hosts) != 1 or host_name(hosts[0]) not in names:
        return "this Host is not served. Names that are served are given by --allow-host."
    for origin in origins:
        if origin not in others and _host_of(origin) != hosts[0].strip().lower():
            return "pages of this Origin may not ask. Those that may are given by --allow-origin."
    return None


def _host_of(origin: str) -> str | None:
    """The host and port of an Origin; None for text that is no address."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def bearer(headers: Headers) -> str | None:
    """The token of a request; None without one."""
    given = headers.getlist("authorization")
    scheme, _, token = given[0].strip().partition(" ") if len(given) == 1 else ("", "", "")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None
