"""Questions with wrong arguments: one error, which names the arguments that the question takes.

Python compares the arguments of a call with a method's parameters before the method's first line runs, and
raises TypeError. So no method can say it in our words: a function around each of them does.
"""

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

    requests: have the parameters that the methods take as typed `**options`, with their defaults. The
    first request counts that has all parameters of a method.
    """

    def checked(kind: type[C]) -> type[C]:
        for name, method in list(vars(kind).items()):
            if inspect.isfunction(method) and not name.startswith("_"):
                setattr(kind, name, _checked(method, _signature(method, requests)))
        return kind

    return checked


def _signature(method: Callable[..., Any], requests: Sequence[Callable[..., Any]]) -> inspect.Signature:
    """The signature of a method, with the parameters of the request in place of `**options`."""
    signature = inspect.signature(method)
    *own, last = signature.parameters.values()
    if last.kind is not inspect.Parameter.VAR_KEYWORD:
        return signature
    named = last.annotation.removeprefix("Unpack[").removesuffix("]")
    options = get_type_hints(inspect.unwrap(method).__globals__[named])
    parameters = (inspect.signature(request).parameters for request in requests)
    wanted = next(found for found in parameters if options.keys() <= found.keys())
    return signature.replace(parameters=[*own, *(one for name, one in wanted.items() if name in options)])


def _checked(method: Callable[..., Any], signature: inspect.Signature) -> Callable[..., Any]:
    parameters = [*signature.parameters.values()]
    most = sum(one.kind is not one.KEYWORD_ONLY for one in parameters)  # arguments without a name
    # By the number of arguments without a name: the names that must be given then, and that may be given.
    free = [{one.name for one in parameters[count:]} for count in range(most + 1)]
    needed = [
        {one.name for one in parameters[count:] if one.default is one.empty} for count in range(most + 1)
    ]

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        count = len(args)
        if count > most or not needed[count] <= kwargs.keys() <= free[count]:
            _refuse(method.__name__, signature, args, kwargs)
        return method(*args, **kwargs)

    call.__signature__ = signature  # type: ignore[attr-defined]  # what `inspect` and `help` show
    return call


def _refuse(name: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    try:
        signature.bind(*args, **kwargs)  # too slow for every call
    except TypeError as error:
        parameters = [one for one in signature.parameters if one != "self"]
        hint = ""
        if "key" in parameters and any(one in kwargs for one in _OF_MEASURES):
            hint = (
                " where and by are for questions about measures, such as quantile and summary, and for top, "
                "heavy_hitters, frequency, distinct and self_join."
            )
        takes = f"It takes {', '.join(parameters)}." if parameters else "It takes no arguments."
        raise InputError(f"{name}: {error}. {takes}{hint}") from None
