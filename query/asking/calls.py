"""Calls of a question with arguments that it does not have: one error that names those it has."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar, get_type_hints

from tidemark.warehouse.errors import InputError

C = TypeVar("C")

_OF_MEASURES = ("where", "by", "groups", "limit", "order", "least_rows")


def checks_calls(*requests: Callable[..., Any]) -> Callable[[type[C]], type[C]]:
    """A class whose public methods raise InputError, not TypeError, for arguments that they do not have.

    requests: have the parameters that the methods take as typed `**options`, with their defaults. Those of
        the first one count that has all parameters of a method.
    """

    def checked(kind: type[C]) -> type[C]:
        for name, method in list(vars(kind).items()):
            if inspect.isfunction(method) and not name.startswith("_"):
                setattr(kind, name, _checked(method, *_signature(method, requests)))
        return kind

    return checked


def _signature(
    method: Callable[..., Any], requests: Sequence[Callable[..., Any]]
) -> tuple[inspect.Signature, frozenset[str]]:
    """The signature of a method, with the parameters of the request in place of `**options`.

    And the parameters of the request that are not among the method's options.
    """
    signature = inspect.signature(method)
    *own, last = signature.parameters.values()
    if last.kind is not inspect.Parameter.VAR_KEYWORD:
        return signature, frozenset()
    named = last.annotation.removeprefix("Unpack[").removesuffix("]")
    options = get_type_hints(inspect.unwrap(method).__globals__[named])
    parameters = (inspect.signature(request).parameters for request in requests)
    wanted = next(found for found in parameters if options.keys() <= found.keys())
    taken = [one for name, one in wanted.items() if name in options]
    shown = signature.replace(parameters=[*own, *taken])
    return shown, frozenset(wanted.keys() - shown.parameters.keys())


def _checked(
    method: Callable[..., Any], signature: inspect.Signature, refused: frozenset[str]
) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            if not refused.isdisjoint(kwargs):
                signature.bind(*args, **kwargs)
            return method(*args, **kwargs)
        except TypeError:
            problem = _misfit(method.__name__, signature, args, kwargs)
            if problem is None:
                raise
            raise InputError(problem) from None

    call.__signature__ = signature  # type: ignore[attr-defined]  # what `inspect` and `help` show
    return call


def _misfit(
    name: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str | None:
    """What is wrong with the arguments; None if there are parameters for all of them."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        parameters = [one for one in signature.parameters if one != "self"]
        hint = ""
        if "key" in parameters and any(one in kwargs for one in _OF_MEASURES):
            hint = (
                " where and by are for questions about measures, such as quantile and summary, and for top, "
                "heavy_hitters, frequency, distinct and self_join."
            )
        takes = f"It takes {', '.join(parameters)}." if parameters else "It takes no arguments."
        return f"{name}: {error}. {takes}{hint}"
    return None
