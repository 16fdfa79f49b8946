"""From the parameters of a request to the answer of a question, as JSON.

The questions and their parameters are those of query/sql/calls.py: `since` and `until` are the window, its
end exclusive. GET gives texts, which are read as on the command line. POST gives one JSON object: its numbers
are taken as they are written, its texts are read as on the command line. A list of values, or a parameter
that is given several times, asks about several.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tidemark.jobs.ask.quantiles import parse_phi, parse_points
from tidemark.jobs.serve.schemas import MOST_ITEMS, check_types
from tidemark.query.groups.where_text import parse_where
from tidemark.query.reading.asked_window import AskedWindow
from tidemark.query.sql.calls import SIGNATURES, resolve_arguments
from tidemark.query.sql.named_call import as_list, ask, planned
from tidemark.query.warehouse import Warehouse
from tidemark.warehouse.columns.json_values import json_text
from tidemark.warehouse.columns.text_values import is_whole, parse_columns, parse_key
from tidemark.warehouse.errors import EmptyWindow, InputError, shortened

JOIN = "inner_product"  # of two warehouses; its other parameters are those of new_keys
QUESTIONS = (*SIGNATURES, JOIN)
FACTS = ("span", "info")  # facts about a warehouse
OWN = ("warehouse", "form", "explain")  # parameters of every question that belong to the server
FORMS = ("answers", "rows", "plan")
SHOWS_ROWS = ("largest", "smallest")
MOST_ANSWERS = {"k": 10_000, "top": 10_000, "limit": 10_000}
_DIGITS = 400  # of a number in a request, before and after the point
_SEVERAL = ("phi", "x", "value", "bins", "groups", "where", "by", "key")  # given once or more
_LISTED = {"quantile": "phi", "rank": "x", "cdf": "x", "frequency": "value", "persistence": "value"}
_SPAN = ("measure", "last", "as_of", "since", "until")


@dataclass(frozen=True, slots=True)
class Request:
    """A client's request: the question by its name, and its parameters with texts or values of JSON."""

    name: str
    given: Mapping[str, Any]
    warehouse: str | None = None
    form: str = "answers"
    explain: bool = False
    other: str | None = None
    are_texts: bool = field(default=False)


def of_query(name: str, pairs: Iterable[tuple[str, str]]) -> Request:
    """The request of a query string; InputError for a parameter given twice that has one value."""
    lists: dict[str, list[str]] = {}
    for parameter, text in pairs:
        lists.setdefault(parameter, []).append(text)
    given: dict[str, Any] = {}
    for parameter, texts in lists.items():
        if len(texts) > 1 and parameter not in _SEVERAL:
            raise InputError(f"{parameter} is given {len(texts)} times. Give it once.")
        given[parameter] = texts if parameter in _SEVERAL else texts[0]
    for parameter in ("by", "key"):
        if len(given.get(parameter, ())) == 1:
            given[parameter] = given[parameter][0]
    given["explain"] = _flag(given.get("explain", "false"))
    return _request(name, given, are_texts=True)


def of_body(name: str, body: bytes) -> Request:
    """The request of a JSON object; InputError for anything else."""
    try:
        given = json.loads(body, parse_float=_number, parse_int=_whole, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:  # also of text that is not UTF-8
        if isinstance(error, InputError):
            raise
        raise InputError(f"the body is not JSON: {shortened(str(error))}.") from None
    if not isinstance(given, dict):
        raise InputError(f"the body must be a JSON object, got {shortened(given)}.")
    return _request(name, {one: value for one, value in given.items() if value is not None}, are_texts=False)


def _request(name: str, given: dict[str, Any], *, are_texts: bool) -> Request:
    own = {parameter: given.pop(parameter) for parameter in OWN if parameter in given}
    other = given.pop("other", None) if name == JOIN else None
    form, explain = own.get("form", FORMS[0]), own.get("explain", False)
    if form not in FORMS:
        raise InputError(f"form must be one of {', '.join(FORMS)}, got {shortened(form)}.")
    if not isinstance(explain, bool):
        raise InputError(f"explain must be true or false, got {shortened(explain)}.")
    for parameter, named in (("warehouse", own.get("warehouse")), ("other", other)):
        if named is not None and not isinstance(named, str):
            raise InputError(f"{parameter} must be the name of a warehouse, got {shortened(named)}.")
    _check_sizes(given)
    if not are_texts:
        check_types(given)
    return Request(name, given, own.get("warehouse"), form, explain, other, are_texts)


def needs(wh: Warehouse, request: Request) -> set[str]:
    """The rights that the request needs, and InputError for a condition that does not parse."""
    rights = {"rows" if request.name in SHOWS_ROWS else "aggregates"}
    given, columns = request.given, dict(wh.options.columns)
    measures = {measure.name for measure in wh.measures}
    named = {name for name in as_list(given.get("by", ())) if isinstance(name, str)}
    by = {part.strip() for text in named for part in text.split(",")}
    if isinstance(_where(wh, given), str) or given.get("measure", next(iter(measures), None)) not in measures:
        rights.add("sql")
    return rights if by <= columns.keys() else {*rights, "sql"}


def answer(wh: Warehouse, request: Request, other: Warehouse | None = None) -> str:
    """The answer as JSON: a document as the command prints with --json, or flat rows, or a plan."""
    if request.name in FACTS:
        return _facts(wh, request)
    given = _values(wh, request)
    if request.form == "plan":
        resolved = {} if request.name == JOIN else resolve_arguments(request.name, [], (), given)
        return planned(wh, request.name, resolved or {}).to_json()
    try:
        found = _ask(wh, request.name, given, other)
    except EmptyWindow:
        if request.form == "rows":
            return "[]"
        raise
    if request.form == "rows":
        return json_text(found.to_rows())
    return str(found.to_json(plan=request.explain))


def _ask(wh: Warehouse, name: str, given: dict[str, Any], other: Warehouse | None) -> Any:
    if name != JOIN:
        resolved = resolve_arguments(name, [], (), given)
        return ask(wh, name, resolved or {})
    resolved = resolve_arguments("new_keys", [], (), given)
    if other is None:
        raise InputError("inner_product needs other, the name of the second warehouse.")
    return wh.inner_product(other, **resolved or {})


def _facts(wh: Warehouse, request: Request) -> str:
    given = dict(request.given)
    unknown = [name for name in given if request.name != "span" or name not in _SPAN]
    if unknown:
        has = ", ".join((*_SPAN, "warehouse") if request.name == "span" else ("warehouse",))
        raise InputError(f"{request.name} has no parameter {unknown[0]!r}. It has: {has}.")
    if request.name == "info":
        return json_text(_without_addresses(wh.info(), request.warehouse))
    resolved = resolve_arguments("summary", [], (), given) or {}
    window = AskedWindow.of(resolved)
    start, end = wh.span(
        resolved.get("measure"), last=window.last, as_of=window.as_of, between=window.between
    )
    return json_text({"start": start, "end": end})


def names_of(wh: Warehouse) -> dict[str, object]:
    """The subjects of questions: measures with their types, keys, groups, the time column and its ticks."""
    options = wh.options
    return {
        "measures": {measure.name: measure.type for measure in options.measures},
        "keys": [list(key.columns) for key in options.keys],
        "groups": [list(names) for names in options.group_names],
        "time": options.time,
        "tick_seconds": None if wh.tick is None else wh.tick.total_seconds(),
    }


def _without_addresses(info: Mapping[str, Any], name: str | None) -> dict[str, Any]:
    """The facts; names in the place of the addresses of warehouses."""
    sites = info.get("warehouses")
    of_each = (
        {}
        if sites is None
        else {"warehouses": {site: {**facts, "warehouse": site} for site, facts in sites.items()}}
    )
    return {**info, **of_each, "warehouse": name}


def _values(wh: Warehouse, request: Request) -> dict[str, Any]:
    """The arguments with values in the place of texts."""
    given = dict(request.given)
    measure = given.get("measure")

    def point(one: Any) -> Any:
        return parse_points(wh, measure, [one])[0] if isinstance(one, str) else one

    read: dict[str, Callable[[Any], Any]] = {
        **dict.fromkeys(("phi", "alpha"), _share),
        **dict.fromkeys(("k", "least_rows", "most", "top", "limit"), _whole_text),
        "x": point,
        "bins": point,
    }
    if request.are_texts:
        _take_single(request.name, given)
    for name in given.keys() & read.keys():
        value = given[name]
        given[name] = [read[name](one) for one in value] if isinstance(value, list) else read[name](value)
    if "where" in given:
        given["where"] = _where(wh, given)
    if "value" in given:
        given["value"] = _keys(wh, given)
    listed = _LISTED.get(request.name, "")
    if listed in given and not isinstance(given[listed], list):
        given[listed] = [given[listed]]
    return given


def _share(value: Any) -> Any:
    return parse_phi(value) if isinstance(value, str) else value


def _take_single(name: str, given: dict[str, Any]) -> None:
    """Takes single values of a query string out of their lists, if the question takes one value."""
    if name not in _LISTED and isinstance(given.get("phi"), list):
        if len(given["phi"]) > 1:
            raise InputError(f"phi is given {len(given['phi'])} times. Give it once.")
        (given["phi"],) = given["phi"]
    if isinstance(given.get("bins"), list) and len(given["bins"]) == 1:
        given["bins"] = _whole_text(given["bins"][0])


def _where(wh: Warehouse, given: Mapping[str, Any]) -> Any:
    """A mapping of columns to values, or a condition in SQL."""
    where = given.get("where")
    if isinstance(where, list) and all(isinstance(text, str) for text in where):
        return parse_where(wh.options, where) if where else None
    return where


def _keys(wh: Warehouse, given: Mapping[str, Any]) -> Any:
    """The keys that were given; one of several columns is a list of its values, or one text."""
    value = given["value"]
    if not wh.keys:
        return value
    columns = given.get("key")
    key = wh.options.key_named(parse_columns(columns) if isinstance(columns, str) else columns)
    items = as_list(value)
    if len(key.parts) > 1 and isinstance(value, list) and not any(isinstance(one, list) for one in items):
        is_one_key = len(items) == len(key.parts) and not any("," in str(one) for one in items)
        items = [items] if is_one_key else items
    return [parse_key(key, one) if isinstance(one, str) else one for one in items]


def _whole_text(value: Any) -> Any:
    return int(value) if isinstance(value, str) and is_whole(value) else value


def _flag(text: str) -> Any:
    return {"true": True, "false": False}.get(text.lower(), text)


def _check_sizes(given: Mapping[str, Any]) -> None:
    """InputError for lists that are too long, and numbers of answers that are too large."""
    for name, value in given.items():
        if isinstance(value, (list, dict)) and len(value) > MOST_ITEMS:
            raise InputError(
                f"{name} has {len(value):,} items, more than {MOST_ITEMS:,}. Ask several times, about fewer."
            )
        number, most = _whole_text(value), MOST_ANSWERS.get(name)
        if most is not None and isinstance(number, (int, Decimal)) and number > most:
            raise InputError(f"{name} must be at most {most:,} here, got {shortened(value)}.")


def _number(text: str) -> Decimal:
    with suppress(ArithmeticError):  # an exponent that no decimal has
        number = Decimal(text)
        if abs(number.adjusted()) <= _DIGITS and len(text) <= _DIGITS:
            return number
    raise InputError(f"a number of the body has more than {_DIGITS} digits: {shortened(text)}.")


def _whole(text: str) -> int:
    if len(text) > _DIGITS:
        raise InputError(f"a number of the body has more than {_DIGITS} digits: {shortened(text)}.")
    return int(text)


def _no_constant(text: str) -> Any:
    raise InputError(f"JSON has no number {text}. Give the text {text!r}.")
