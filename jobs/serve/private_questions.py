"""Questions about warehouses with private columns: tokens come in the body, and no value is echoed.

An address is kept by proxies and browsers, so it must not have values of columns. A value where a token
belongs is refused: the client makes the tokens, where the secret is. No error shows values of the request,
neither in the answer nor in the log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tidemark.jobs.serve.questions import Request, needs
from tidemark.jobs.serve.responses import Refused
from tidemark.query.warehouse import Warehouse
from tidemark.warehouse.errors import InputError, TidemarkError
from tidemark.warehouse.private.secrets import tokens_alone

NOT_READ = (
    "the parameters cannot be read; /openapi.json has those of this question. They are not shown, because "
    "the server has private columns."
)
_VALUES = ("value", "low", "high", "where", "groups")  # parameters with values of columns
_SHOWN = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\d{4,}")  # text in an error that may be a value


def answered(warehouses: Iterable[Warehouse], request: Request, answer: Callable[[], str]) -> str:
    """The result of `answer`; with the rules above if one of these warehouses has private columns."""
    private = [wh for wh in warehouses if wh.options.private]
    if not private:
        return answer()
    failed: Exception
    try:
        with tokens_alone():
            _check_place(private[0], request)
            return answer()
    except Refused:
        raise
    except TidemarkError as error:
        failed = type(error)(without_values(str(error), request.given))
    except Exception as error:  # noqa: BLE001  its text goes to the log
        failed = RuntimeError(f"{type(error).__name__} in a question about private columns")
    raise failed  # outside of the handlers: else the error with the values would be its context


def without_values(text: str, given: Mapping[str, Any]) -> str:
    """The text of an error without text that may be values of these parameters."""
    for value in sorted(set(_leaves([given.get(name) for name in _VALUES])), key=len, reverse=True):
        text = text.replace(value, "...")
    return _SHOWN.sub("'...'", text)


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif value is not None and value != "":
        yield str(value)


def _check_place(wh: Warehouse, request: Request) -> None:
    """InputError for values of columns in the address."""
    given = [name for name in _VALUES if name in request.given]
    if request.are_texts and (given or "sql" in needs(wh, request)):
        raise InputError(
            f"{given[0] if given else 'an expression'} is not taken in an address, because the warehouse has "
            "private columns. Send POST with the parameters as JSON."
        )
