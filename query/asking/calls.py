"""Calls of a question with arguments that it does not have: one error that names those it has."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar

from tidemark.warehouse.errors import InputError

C = TypeVar("C")

_OF_MEASURES = ("where", "by", "groups", "limit")


def checks_calls(kind: type[C]) -> type[C]:
    """A class whose public methods raise InputError, not TypeError, for arguments that they do not have."""
    for name, method in list(vars(kind).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(kind, name, _checked(method))
    return kind


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except TypeError:
            problem = _misfit(method, args, kwargs)
            if problem is None:
                raise
            raise InputError(problem) from None

    return call


def _misfit(method: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """What is wrong with the arguments; None if the method has parameters for all of them."""
    signature = inspect.signature(method)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        parameters = [name for name in signature.parameters if name != "self"]
        hint = ""
        if "key" in parameters and any(name in kwargs for name in _OF_MEASURES):
            hint = " where and by are for questions about measures: quantile, rank, cdf and histogram."
        takes = f"It takes {', '.join(parameters)}." if parameters else "It takes no arguments."
        return f"{method.__name__}: {error}. {takes}{hint}"
    return None
