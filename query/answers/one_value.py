"""Answers as numbers: one that means one value counts and compares as that value; several are refused.

>>> wh.quantile(0.99) < 250                                              # doctest: +SKIP
>>> wh.frequency("ATL") / wh.frequency("SEA")                            # doctest: +SKIP

The other side may be whatever the value itself can be compared with or added to: numbers, times, durations,
another answer. Two answers are equal if all of their fields but the plan are equal; an answer equals a number
if its value does. An answer is false if its value is 0, as a number is, or if it has no value.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import fields
from typing import Any, ClassVar, NoReturn, cast

from tidemark.warehouse.errors import EmptyWindow, InputError

_Operator = Callable[[Any, Any], Any]


def _binary(operation: _Operator) -> tuple[_Operator, _Operator]:
    """The method of an operator, and its reflected one."""

    def forward(answer: OneValue, other: Any) -> Any:
        if isinstance(other, Several):
            return NotImplemented
        return operation(_value_of(answer), _value_of(other))

    def reflected(answer: OneValue, other: Any) -> Any:
        return operation(_value_of(other), _value_of(answer))

    return forward, reflected


def _value_of(answer: Any) -> Any:
    """The value of an answer; anything else stays as it is. EmptyWindow if there is none."""
    if not isinstance(answer, OneValue):
        return answer
    value = getattr(answer, answer.ONE)
    if value is None:
        raise EmptyWindow(
            f"the answer has no {answer.ONE} to count with, because there are no rows: {answer!r}"
        )
    return value


class OneValue:
    """An answer that is one value, that of the field `ONE`."""

    __slots__ = ()

    ONE: ClassVar[str]

    def __bool__(self) -> bool:
        return bool(getattr(self, self.ONE))

    def __float__(self) -> float:
        return float(_value_of(self))

    def __int__(self) -> int:
        return int(_value_of(self))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OneValue):
            return bool(getattr(self, self.ONE) == other)
        names = [field.name for field in fields(cast("Any", self)) if field.compare]
        return type(self) is type(other) and all(
            [getattr(self, name)] == [getattr(other, name)] for name in names
        )

    __hash__ = None  # type: ignore[assignment]

    __lt__, __le__ = _binary(operator.lt)[0], _binary(operator.le)[0]
    __gt__, __ge__ = _binary(operator.gt)[0], _binary(operator.ge)[0]
    __add__, __radd__ = _binary(operator.add)
    __sub__, __rsub__ = _binary(operator.sub)
    __mul__, __rmul__ = _binary(operator.mul)
    __truediv__, __rtruediv__ = _binary(operator.truediv)
    __floordiv__, __rfloordiv__ = _binary(operator.floordiv)
    __mod__, __rmod__ = _binary(operator.mod)
    __pow__, __rpow__ = _binary(operator.pow)

    def __neg__(self) -> Any:
        return -_value_of(self)

    def __pos__(self) -> Any:
        return +_value_of(self)

    def __abs__(self) -> Any:
        return abs(_value_of(self))

    def __round__(self, digits: int | None = None) -> Any:
        return round(_value_of(self), digits)

    def __format__(self, spec: str) -> str:
        return format(_value_of(self), spec) if spec else str(self)


def _refuse(answers: Any, *_: Any) -> NoReturn:
    raise InputError(
        f"{type(answers).__name__} has several values, so it is not one number. Take one of them, such as "
        f"{answers.TAKE}."
    )


def _refuse_numbers(answers: Any, other: Any) -> Any:
    """Lets a list that is extended with answers do it: `found += answers`."""
    return NotImplemented if isinstance(other, list) else _refuse(answers)


class Several:
    """Several answers: no number, and in no order. `TAKE` says how to take one of them."""

    __slots__ = ()

    TAKE: ClassVar = "answers[0], or go through them: [answer for answer in answers if answer > 3]"

    __float__ = __int__ = __neg__ = __pos__ = __abs__ = __round__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = _refuse_numbers
    __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = _refuse
    __mod__ = __rmod__ = __pow__ = __rpow__ = _refuse
