"""Answers by their shape, for the questions whose types leave open which of the two comes back."""

from __future__ import annotations

from typing import TypeVar, overload

from tidemark.query.answers.measure_answers import Answers

A = TypeVar("A")


@overload
def single(answer: Answers[A]) -> A: ...
@overload
def single(answer: A | Answers[A]) -> A: ...
def single(answer: A | Answers[A]) -> A:
    """The answer to a question about one value."""
    assert not isinstance(answer, Answers), answer
    return answer


@overload
def several(answers: Answers[A]) -> Answers[A]: ...
@overload
def several(answers: A | Answers[A]) -> Answers[A]: ...
def several(answers: A | Answers[A]) -> Answers[A]:
    """The answers to a question about a sequence of values."""
    assert isinstance(answers, Answers), answers
    return answers
