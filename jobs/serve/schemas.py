"""The JSON type of each parameter of a question: for the OpenAPI document, and to check request bodies."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from tidemark.warehouse.errors import InputError, shortened

MOST_ITEMS = 1_000  # of a list in a request
_NUMBER = {"type": "number"}
_SHARE = {"type": "number", "minimum": 0, "maximum": 1}
TEXT = {"type": "string"}
_WHOLE = {"type": "integer", "minimum": 1}
_SPAN = {"anyOf": [TEXT, _WHOLE], "examples": ["7d"]}
_MOMENT = {"anyOf": [TEXT, {"type": "integer"}], "examples": ["2001-03-19"]}
_VALUE = {"anyOf": [TEXT, _NUMBER, {"type": "boolean"}]}


def _several(item: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [item, {"type": "array", "items": item, "maxItems": MOST_ITEMS}]}


_KEY = _several(_VALUE)
_COLUMNS = _several(TEXT)
SCHEMAS: dict[str, dict[str, Any]] = {
    "phi": _several(_SHARE),
    "alpha": _SHARE,
    "x": _several({"anyOf": [_NUMBER, TEXT]}),
    "bins": {"anyOf": [_WHOLE, {"type": "array", "items": {"anyOf": [_NUMBER, TEXT]}}]},
    "k": _WHOLE,
    "value": _several(_KEY),
    "low": _KEY,
    "high": _KEY,
    "measure": TEXT,
    "key": _COLUMNS,
    "separator": TEXT,
    "mode": TEXT,
    "last": _SPAN,
    "as_of": _MOMENT,
    **dict.fromkeys(("since", "until", "other_since", "other_until"), _MOMENT),
    **dict.fromkeys(("every", "width", "slot"), _SPAN),
    "where": {"anyOf": [_COLUMNS, {"type": "object", "additionalProperties": _KEY}]},
    "by": _COLUMNS,
    "groups": {"type": "array", "items": _KEY},
    **dict.fromkeys(("top", "limit", "least_rows", "most"), _WHOLE),
    "order": TEXT,
}


def check_types(given: Mapping[str, Any]) -> None:
    """InputError for a parameter of another type than its schema's; parameters without a schema pass."""
    for name, value in given.items():
        schema = SCHEMAS.get(name)
        if schema is not None and not _fits(value, schema):
            raise InputError(f"{name} must be {_words(schema)}, got {shortened(value)}.")


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value of JSON is of the type; bounds and lengths are checked later (questions.py)."""
    if "anyOf" in schema:
        return any(_fits(value, one) for one in schema["anyOf"])
    kind = schema["type"]
    if kind == "array":
        return isinstance(value, list) and all(_fits(one, schema["items"]) for one in value)
    if kind == "object":
        fields = value.values() if isinstance(value, dict) else [None]
        return all(_fits(one, schema["additionalProperties"]) for one in fields)
    if isinstance(value, bool):
        return bool(kind == "boolean")
    types: dict[str, Any] = {"string": str, "integer": int, "number": (int, Decimal), "boolean": ()}
    return isinstance(value, types[kind])


def _words(schema: Mapping[str, Any]) -> str:
    """The type in words."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_words, schema["anyOf"])))
    names = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}
    if schema["type"] == "array":
        return f"a list of {_words(schema['items'])}"
    return names.get(schema["type"], "an object")
