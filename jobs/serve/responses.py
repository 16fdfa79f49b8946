"""The server's responses: documents of JSON, and errors with their status.

A client gets the text of an error about its own request. Of an error on the server's side, whose text may
name files and addresses, it learns only that there is one; the log has the text.
"""

from __future__ import annotations

import logging

from starlette.responses import Response

from tidemark.jobs.serve.question_queue import Busy
from tidemark.warehouse.columns.json_values import json_text
from tidemark.warehouse.errors import (
    EmptyWindow,
    InputError,
    NotAWarehouse,
    NotBuilt,
    TidemarkError,
    TimeLimitReached,
)

_log = logging.getLogger("tidemark.serve")
RETRY_SECONDS = "1"


class Refused(TidemarkError):
    """Why a request is not answered, with the status of the response."""

    def __init__(self, status: int, kind: str, text: str) -> None:
        super().__init__(text)
        self.status, self.kind = status, kind


def document(text: str) -> Response:
    """A document of JSON."""
    return Response(text, media_type="application/json")


def refusal(status: int, kind: str, text: str) -> Response:
    """An error as a document: `error`, its kind, and `message`."""
    response = document(json_text({"error": kind, "message": text}))
    response.status_code = status
    if status == 401:
        response.headers["www-authenticate"] = 'Bearer realm="tidemark"'
    if status in {429, 503}:
        response.headers["retry-after"] = RETRY_SECONDS
    return response


def as_refused(error: Exception) -> Refused:
    """The part of an error that a client is told. The rest is logged."""
    kind, text = type(error).__name__, str(error)
    if isinstance(error, Refused):
        return error
    if isinstance(error, Busy):
        return Refused(429, kind, text)
    if isinstance(error, (EmptyWindow, NotBuilt, TimeLimitReached)):
        return Refused(422, kind, text)
    if isinstance(error, InputError) and not isinstance(error, NotAWarehouse):
        return Refused(400, kind, text)
    if isinstance(error, TidemarkError):
        _log.warning("a question failed: %s: %s", kind, text)
        return Refused(503, kind, "the server cannot answer from its warehouse now; its log says why.")
    _log.error("a question failed unexpectedly", exc_info=error)
    return Refused(500, "InternalError", "the server failed unexpectedly; its log says how.")
