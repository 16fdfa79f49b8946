"""The OpenAPI document, made from the questions and their parameters, see parameters.py."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from tidemark.jobs.serve.files import REQUESTS
from tidemark.jobs.serve.parameters import description_of, properties_of, required
from tidemark.jobs.serve.questions import FACTS, FORMS, QUESTIONS
from tidemark.jobs.serve.schemas import TEXT
from tidemark.query.reader import Reader
from tidemark.warehouse.columns.json_values import json_text

_WAREHOUSE = {**TEXT, "description": "the name of the warehouse; needed where the server has several"}
_SERVERS_OWN: dict[str, dict[str, Any]] = {
    "warehouse": _WAREHOUSE,
    "form": {
        "type": "string",
        "enum": list(FORMS),
        "default": FORMS[0],
        "description": "answers: the document of the command's --json. "
        "rows: flat rows of time, value, low, high. "
        "plan: of self_join and distinct, the files, rows and bytes that they are to read, which is not done",
    },
    "explain": {
        "type": "boolean",
        "default": False,
        "description": "add to a document how the answers were found, as `plan`",
    },
}
_STATUSES = {
    "400": "the request does not fit: the message says what came and what was expected",
    "401": "no token, or one that does not count",
    "403": "the token lacks a right, or the Host or Origin is not served",
    "408": "the body came too slowly",
    "413": "the body is too large",
    "415": "the body is not JSON",
    "422": "there is no answer: an empty window, a key that is not built yet, a question that takes too long",
    "429": "too many questions at the same time; see Retry-After",
    "503": "the server cannot read its warehouse or its tokens now",
}


@cache
def openapi() -> str:
    """The document as JSON."""
    paths: dict[str, Any] = {}
    schemas, parameters = _Shared("schemas"), _Shared("parameters")
    for name in (*QUESTIONS, *FACTS):
        fields = {one: schemas.ref(one, schema) for one, schema in _fields(name).items()}
        get = {**_operation(name), "parameters": [parameters.ref(*one) for one in _in_query(name, fields)]}
        paths[f"/{name}"] = {"get": get}
        if name in QUESTIONS:
            post = {**_operation(name), "operationId": f"{name}_post", "requestBody": _in_body(name, fields)}
            post["description"] = f"As GET /{name}, with the parameters as one JSON object."
            paths[f"/{name}"]["post"] = post
    paths["/warehouses"] = {
        "get": {
            "operationId": "warehouses",
            "summary": "The warehouses that the token may ask, with their measures, keys and groups.",
            "responses": _responses({"type": "object"}),
        }
    }
    paths |= {f"/files/{name}": {"post": _files(name)} for name in REQUESTS}
    text = {"description": "the metrics", "content": {"text/plain": {"schema": TEXT}}}
    paths["/metrics"] = {
        "get": {
            "operationId": "metrics",
            "summary": "Freshness, rows, runs, quantiles and latencies in the text form of Prometheus.",
            "responses": {**_responses({"type": "object"}), "200": text},
        }
    }
    components = {
        "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        "schemas": schemas.parts,
        "parameters": parameters.parts,
        "responses": {status: _error(words) for status, words in _STATUSES.items()},
    }
    return json_text(
        {
            "openapi": "3.1.0",
            "info": {"title": "tidemark", "version": own_version(), "description": inspect.getdoc(Reader)},
            "security": [{"token": []}],
            "paths": paths,
            "components": components,
        }
    )


class _Shared:
    """Parts of the document that several addresses have, each written once; `parts` are those by name."""

    def __init__(self, kind: str) -> None:
        self._kind, self.parts = kind, dict[str, Any]()

    def ref(self, name: str, part: Any) -> dict[str, str]:
        """A reference to the part, which gets this name, with a number if others have it."""
        number, key = 1, name
        while self.parts.setdefault(key, part) != part:
            number += 1
            key = f"{name}_{number}"
        return {"$ref": f"#/components/{self._kind}/{key}"}


def _operation(name: str) -> dict[str, Any]:
    text = description_of(name)
    shape = {"anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}]}
    return {
        "operationId": name,
        "summary": text.partition("\n")[0],
        "description": text,
        "responses": _responses(shape),
    }


def _files(name: str) -> dict[str, Any]:
    """The addresses for reading files; served_ranges.py has the form of their requests."""
    what = "ranges of files" if name == "ranges" else "the names of the files below a folder"
    fields = {
        "warehouse": _WAREHOUSE,
        "folder": {**TEXT, "description": "for names: relative to the warehouse"},
        "ranges": {"type": "array", "description": "for ranges: of [path, start, stop]"},
    }
    wanted = {one: fields[one] for one in ("warehouse", "ranges" if name == "ranges" else "folder")}
    schema = {"type": "object", "properties": wanted, "required": list(wanted)}
    binary = {"description": "the files", "content": {"application/octet-stream": {"schema": {}}}}
    return {
        "operationId": f"files_{name}",
        "summary": f"The warehouse's files for query.open: {what}.",
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": {**_responses({"type": "object"}), "200": binary},
    }


def _responses(schema: dict[str, Any]) -> dict[str, Any]:
    told = {status: {"$ref": f"#/components/responses/{status}"} for status in _STATUSES}
    return {"200": {"description": "the answer", "content": {"application/json": {"schema": schema}}}, **told}


def _error(words: str) -> dict[str, Any]:
    fields = {"error": TEXT, "message": TEXT}
    schema = {"type": "object", "required": list(fields), "properties": fields}
    return {"description": words, "content": {"application/json": {"schema": schema}}}


def _fields(name: str) -> dict[str, dict[str, Any]]:
    """The schema of each parameter, those of the server included."""
    return {**properties_of(name), **(_SERVERS_OWN if name in QUESTIONS else {"warehouse": _WAREHOUSE})}


def _in_query(name: str, fields: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for one, schema in fields.items():
        yield one, {"name": one, "in": "query", "required": one in required(name), "schema": schema}


def _in_body(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": fields, "required": list(required(name))}
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def own_version() -> str:
    """The version of the package; "0" if it is run from a source tree."""
    try:
        return version("tidemark")
    except PackageNotFoundError:
        return "0"
