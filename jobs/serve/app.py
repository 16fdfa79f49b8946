"""The application: which address answers what.

    GET, POST /quantile ...   a question, see questions.py; GET /span and /info facts
    GET /warehouses           what the token may ask: names, measures, keys, groups
    GET /                     the page for people, and its files below /page
    GET /metrics              for Prometheus, see metrics.py
    POST /files/ranges ...    the files of a warehouse, see files.py
    GET /openapi.json         the description of all this

A question is about the warehouse of the parameter `warehouse`, which may be left out where the server has
one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidemark.jobs.serve import files, pages, questions
from tidemark.jobs.serve.hosts import KNOWN, bearer, checked
from tidemark.jobs.serve.metrics import Metrics
from tidemark.jobs.serve.openapi import openapi
from tidemark.jobs.serve.private_questions import NOT_READ, answered
from tidemark.jobs.serve.question_queue import Deadline, Gone, QuestionQueue
from tidemark.jobs.serve.responses import Refused, as_refused, document, refusal
from tidemark.jobs.serve.tokens import RIGHTS, Grant, Tokens
from tidemark.query.warehouse import Warehouse
from tidemark.warehouse.columns.json_values import json_text
from tidemark.warehouse.delta.served_ranges import VERSION, VERSION_HEADER
from tidemark.warehouse.errors import InputError, shortened

BODY_BYTES = 2**21
BODY_SECONDS = 20.0
PIECE_BYTES = 2**14  # of an answer, which are given to the connection at once, see connections.py
ANSWER_BYTES = 2**26

Handler = Callable[[HttpRequest], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Served:
    """The state of the server: the warehouses by name, the tokens, and the queue that answers questions."""

    warehouses: Mapping[str, Warehouse]
    tokens: Tokens
    queue: QuestionQueue
    metrics: Metrics

    def application(self, hosts: Iterable[str], origins: Iterable[str] = ()) -> ASGIApp:
        """The application, which answers to these Hosts and to pages of these Origins beside its own."""
        routes = [
            Route(f"/{name}", _told(partial(self._question, name)), methods=["GET", "POST"])
            for name in questions.QUESTIONS
        ]
        routes += [
            Route(f"/{name}", _told(partial(self._question, name)), methods=["GET"])
            for name in questions.FACTS
        ]
        routes += [
            Route("/warehouses", _told(self._warehouses), methods=["GET"]),
            Route("/metrics", _told(self._metrics), methods=["GET"]),
            *(
                Route(f"/files/{name}", _told(partial(self._files, name)), methods=["POST"])
                for name in files.REQUESTS
            ),
            *pages.routes(),
            Route("/openapi.json", _told(self._openapi), methods=["GET"]),
        ]
        app: ASGIApp = Starlette(routes=routes, exception_handlers={404: _no_address, 405: _no_method})
        if origins := list(origins):
            app = CORSMiddleware(
                app,
                allow_origins=origins,
                allow_methods=["GET", "POST"],
                allow_headers=["authorization", "content-type"],
            )
        return checked(_in_pieces(app), hosts, origins)

    async def _question(self, name: str, http: HttpRequest) -> Response:
        grant = self._grant(http)
        if http.method == "POST":
            if http.url.query:
                raise Refused(
                    400, "InputError", "POST takes its parameters in the body, none in the address."
                )
            body = await _body(http)
            request = self._read(partial(questions.of_body, name, body))
        else:
            request = self._read(partial(questions.of_query, name, http.query_params.multi_items()))
        request = replace(request, warehouse=self._named(request.warehouse))
        wh, other = self._chosen(grant, request)

        def ask(deadline: Deadline) -> str:
            limited, limited_other = deadline.limited(wh), None if other is None else deadline.limited(other)

            def answer() -> str:
                for right in sorted(questions.needs(limited, request)):
                    self._check(grant, right, request.warehouse)
                return questions.answer(limited, request, limited_other)

            text = answered(filter(None, [wh, other]), request, answer)
            if len(text) > ANSWER_BYTES:
                raise Refused(422, "TooMuch", "the answer is larger than 64 MB. Ask about fewer groups.")
            return text

        began = time.monotonic()
        try:
            return document(await self.queue.answer(ask, partial(_left, http)))
        finally:
            self.metrics.took(request.warehouse or "", name, time.monotonic() - began)

    def _read(self, read: Callable[[], questions.Request]) -> questions.Request:
        """The request; if a warehouse has private columns, an error about the request shows nothing of it."""
        try:
            return read()
        except InputError:
            if not any(wh.options.private for wh in self.warehouses.values()):
                raise
            raise InputError(NOT_READ) from None

    def _chosen(self, grant: Grant, request: questions.Request) -> tuple[Warehouse, Warehouse | None]:
        """The warehouses of a request. Unknown names are refused in the same way as names without rights."""
        self._check(grant, None, request.warehouse)
        if request.other is not None:
            self._check(grant, "aggregates", request.other)
        wh = self.warehouses[request.warehouse or ""]
        return wh, None if request.other is None else self.warehouses[request.other]

    def _named(self, warehouse: str | None) -> str:
        if warehouse is None and len(self.warehouses) > 1:
            raise Refused(400, "InputError", "the server has several warehouses: give warehouse=NAME.")
        return next(iter(self.warehouses)) if warehouse is None else warehouse

    def _check(self, grant: Grant, right: str | None, name: str | None) -> None:
        """Refuses a warehouse in which the token lacks the right; None: all rights but metrics."""
        wanted = [one for one in RIGHTS if one != "metrics"] if right is None else [right]
        if name is None or name not in self.warehouses or not any(grant.may(one, name) for one in wanted):
            needed = "a right" if right is None else f"the right {right}"
            raise Refused(
                403, "Refused", f"the token does not have {needed} in a warehouse {shortened(name)}."
            )

    def _grant(self, http: HttpRequest) -> Grant:
        token = bearer(http.headers)
        grant = None if token is None else self.tokens.find(token)
        if grant is None:
            raise Refused(401, "Unauthorized", "give a valid token: Authorization: Bearer TOKEN")
        http.scope[KNOWN] = True
        return grant

    async def _files(self, request: str, http: HttpRequest) -> Response:
        grant = self._grant(http)
        given = files.parsed(await _body(http))
        name = given["warehouse"].partition(".")[0]
        self._check(grant, "files", name)
        wanted = files.files_of(self.warehouses[name], given["warehouse"])
        began = time.monotonic()
        try:
            content = await self.queue.answer(
                lambda _: files.answer(wanted, request, given), partial(_left, http)
            )
        finally:
            self.metrics.took(name, "files", time.monotonic() - began)
        return Response(content, media_type="application/octet-stream", headers={VERSION_HEADER: VERSION})

    async def _warehouses(self, http: HttpRequest) -> Response:
        grant = self._grant(http)
        found = {}
        for name, wh in self.warehouses.items():
            rights = [right for right in RIGHTS if grant.may(right, name)]
            if rights:
                names = await self.queue.answer(partial(_names, wh), partial(_left, http))
                found[name] = {"rights": rights, **names}
        return document(json_text({"warehouses": found}))

    async def _metrics(self, http: HttpRequest) -> Response:
        grant = self._grant(http)
        names = [name for name in self.warehouses if grant.may("metrics", name)]
        if not names:
            raise Refused(403, "Refused", "the token has the right metrics in no warehouse.")
        return await self.metrics.scrape(names)

    async def _openapi(self, http: HttpRequest) -> Response:
        self._grant(http)
        return document(openapi())


def _names(wh: Warehouse, _: Deadline) -> dict[str, object]:
    return questions.names_of(wh)


def _told(handler: Handler) -> Handler:
    """The handler; its errors become answers."""

    async def run(http: HttpRequest) -> Response:
        try:
            return await handler(http)
        except (Gone, ClientDisconnect):
            return Response(status_code=499)  # nobody reads it
        except Exception as error:  # noqa: BLE001  each is told, and logged where it is not the client's
            found = as_refused(error)
            return refusal(found.status, found.kind, str(found))

    return run


async def _no_address(_: HttpRequest, __: Exception) -> Response:
    return refusal(404, "NotFound", "there is no such address; /openapi.json has all of them.")


async def _no_method(_: HttpRequest, error: Exception) -> Response:
    response = refusal(405, "MethodNotAllowed", "questions are GET or POST; nothing can be changed here.")
    response.headers.update(getattr(error, "headers", None) or {})
    return response


async def _left(http: HttpRequest) -> None:
    """Returns once the client has gone."""
    while (await http.receive())["type"] != "http.disconnect":
        pass


async def _body(http: HttpRequest) -> bytes:
    """The body, of a bounded size, which came in a bounded time."""
    kind = http.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" or http.headers.get("content-encoding", "identity") != "identity":
        raise Refused(415, "UnsupportedMediaType", "the body must be application/json, without an encoding.")
    announced = http.headers.get("content-length", "0")
    if announced.isdecimal() and (len(announced) > 9 or int(announced) > BODY_BYTES):
        raise _too_large()
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in http.stream():
                body += chunk
                if len(body) > BODY_BYTES:
                    raise _too_large()
    except TimeoutError:
        raise Refused(408, "RequestTimeout", f"the body took longer than {BODY_SECONDS:g} seconds.") from None
    return bytes(body)


def _too_large() -> Refused:
    return Refused(413, "ContentTooLarge", f"the body has more than {BODY_BYTES:,} bytes.")


def _in_pieces(app: ASGIApp) -> ASGIApp:
    """The application, whose answers are sent piece by piece: the next one once the client takes them."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_pieces(message: Message) -> None:
            body = message.get("body", b"")
            *starts, last = range(0, len(body), PIECE_BYTES) or [0]
            for start in starts:
                await send({**message, "body": body[start : start + PIECE_BYTES], "more_body": True})
            await send({**message, "body": body[last:]} if starts else message)

        await app(scope, receive, send_pieces)

    return run
