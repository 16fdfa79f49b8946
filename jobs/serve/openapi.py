"""The OpenAPI document, made from the questions: names, order, defaults and descriptions of parameters.

Names come from SIGNATURES, defaults and choices from the methods of Reader, descriptions from its docstrings.
schemas.py has the JSON type of each parameter.
"""

from __future__ import annotations

import inspect
import re
from collections import ChainMap
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from tidemark.jobs.serve.questions import FACTS, FORMS, JOIN, MOST_ANSWERS, QUESTIONS
from tidemark.jobs.serve.schemas import SCHEMAS, TEXT
from tidemark.query.reader import Reader
from tidemark.query.sql.calls import SIGNATURES
from tidemark.warehouse.columns.json_values import json_text

_WORDS = {
    "since": "the start of the window, inclusive: an ISO time, or the number of a step without a time column",
    "until": "the end of the window, exclusive",
    "other_since": "the start of the second window",
    "other_until": "the end of the second window",
    "other": "the name of the second warehouse",
    "warehouse": "the name of the warehouse; needed where the server has several",
    "form": "answers: the document of the command's --json. rows: flat rows of time, value, low, high",
    "explain": "add to a document how the answers were found, as `plan`",
}
_ELSE = {
    "k": "a whole number of at least 1",
    "slot": "as in `persistent`",
}  # descriptions that only another question has
_SERVERS_OWN: dict[str, dict[str, Any]] = {
    "warehouse": TEXT,
    "form": {"type": "string", "enum": list(FORMS), "default": FORMS[0]},
    "explain": {"type": "boolean", "default": False},
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


def parameters_of(name: str) -> tuple[str, ...]:
    """The parameters of a question, without those that all have."""
    if name == JOIN:
        return tuple(one for one in (*SIGNATURES["new_keys"].parameters, "other") if one != "every")
    if name == "span":
        return ("measure", "last", "as_of", "since", "until")
    return SIGNATURES[name].parameters if name in SIGNATURES else ()


def required(name: str) -> tuple[str, ...]:
    """The parameters without which there is no question."""
    if name == JOIN:
        return ("other",)
    return SIGNATURES[name].subjects[:1] if name in SIGNATURES and SIGNATURES[name].needed else ()


@cache
def openapi() -> str:
    """The document as JSON."""
    paths: dict[str, Any] = {}
    schemas, parameters = _Shared("schemas"), _Shared("parameters")
    for name in (*QUESTIONS, *FACTS):
        fields = {one: schemas.ref(one, schema) for one, schema in _properties(name).items()}
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
            "info": {"title": "tidemark", "version": _version(), "description": inspect.getdoc(Reader)},
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
    text = inspect.getdoc(getattr(Reader, name)) or ""
    shape = {"anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}]}
    return {
        "operationId": name,
        "summary": text.partition("\n")[0],
        "description": text,
        "responses": _responses(shape),
    }


def _responses(schema: dict[str, Any]) -> dict[str, Any]:
    told = {status: {"$ref": f"#/components/responses/{status}"} for status in _STATUSES}
    return {"200": {"description": "the answer", "content": {"application/json": {"schema": schema}}}, **told}


def _error(words: str) -> dict[str, Any]:
    fields = {"error": TEXT, "message": TEXT}
    schema = {"type": "object", "required": list(fields), "properties": fields}
    return {"description": words, "content": {"application/json": {"schema": schema}}}


def _properties(name: str) -> dict[str, dict[str, Any]]:
    """The schema of each parameter, with its description from Reader."""
    method = getattr(Reader, name)
    signature = inspect.signature(method).parameters
    said = (_described(inspect.getdoc(one) or "") for one in (Reader, method))
    words = dict(ChainMap(_WORDS, *reversed(list(said)), _ELSE))
    found = {}
    for parameter in parameters_of(name):
        schema = dict(_SERVERS_OWN["warehouse"] if parameter == "other" else SCHEMAS[parameter])
        if parameter == "mode":
            schema["enum"] = list(SIGNATURES[name if name in SIGNATURES else "new_keys"].modes)
        if parameter in MOST_ANSWERS:
            schema["maximum"] = MOST_ANSWERS[parameter]
        if parameter in signature and isinstance(signature[parameter].default, (str, int)):
            schema["default"] = signature[parameter].default
        found[parameter] = {**schema, "description": words.get(parameter, "")}
    own = _SERVERS_OWN if name in QUESTIONS else {"warehouse": _SERVERS_OWN["warehouse"]}
    return found | {one: {**schema, "description": _WORDS[one]} for one, schema in own.items()}


def _in_query(name: str, fields: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for one, schema in fields.items():
        yield one, {"name": one, "in": "query", "required": one in required(name), "schema": schema}


def _in_body(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": fields, "required": list(required(name))}
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _described(text: str) -> dict[str, str]:
    """The descriptions of parameters in a docstring: paragraphs that begin with names and a colon."""
    found: dict[str, str] = {}
    pattern = r"^([a-z_]+(?:, [a-z_]+)*): (.+?)(?=^\S|^\s*$|\Z)"
    for match in re.finditer(pattern, text, re.MULTILINE | re.DOTALL):
        for parameter in match[1].split(", "):
            found[parameter] = " ".join(match[2].split())
    return found


def _version() -> str:
    try:
        return version("tidemark")
    except PackageNotFoundError:  # run from a source tree
        return "0"
