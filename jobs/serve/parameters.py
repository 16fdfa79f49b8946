"""The parameters of the questions: names, order, defaults, descriptions and types.

Names come from SIGNATURES, defaults and choices from the methods of Reader, descriptions from its docstrings.
schemas.py has the JSON type of each parameter.
"""

from __future__ import annotations

import inspect
import re
from collections import ChainMap
from typing import Any

from tidemark.jobs.serve.questions import JOIN, MOST_ANSWERS
from tidemark.jobs.serve.schemas import SCHEMAS, TEXT
from tidemark.query.reader import Reader
from tidemark.query.sql.calls import SIGNATURES

_WORDS = {
    "since": "the start of the window, inclusive: an ISO time, or the number of a step without a time column",
    "until": "the end of the window, exclusive",
    "other_since": "the start of the second window",
    "other_until": "the end of the second window",
    "other": "the name of the second warehouse",
}
_ELSE = {
    "k": "a whole number of at least 1",
    "slot": "as in `persistent`",
}  # descriptions that only another question has


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


def description_of(name: str) -> str:
    """The docstring of a question."""
    return inspect.getdoc(getattr(Reader, name)) or ""


def properties_of(name: str) -> dict[str, dict[str, Any]]:
    """The schema of each parameter of a question, with its description from Reader."""
    signature = inspect.signature(getattr(Reader, name)).parameters
    said = (_described(text) for text in (inspect.getdoc(Reader) or "", description_of(name)))
    words = dict(ChainMap(_WORDS, *reversed(list(said)), _ELSE))
    found = {}
    for parameter in parameters_of(name):
        schema = dict(TEXT if parameter == "other" else SCHEMAS[parameter])
        if parameter == "mode":
            schema["enum"] = list(SIGNATURES[name if name in SIGNATURES else "new_keys"].modes)
        if parameter in MOST_ANSWERS:
            schema["maximum"] = MOST_ANSWERS[parameter]
        if parameter in signature and isinstance(signature[parameter].default, (str, int)):
            schema["default"] = signature[parameter].default
        found[parameter] = {**schema, "description": words.get(parameter, "")}
    return found


def _described(text: str) -> dict[str, str]:
    """The descriptions of parameters in a docstring: paragraphs that begin with names and a colon."""
    found: dict[str, str] = {}
    pattern = r"^([a-z_]+(?:, [a-z_]+)*): (.+?)(?=^\S|^\s*$|\Z)"
    for match in re.finditer(pattern, text, re.MULTILINE | re.DOTALL):
        for parameter in match[1].split(", "):
            found[parameter] = " ".join(match[2].split())
    return found
