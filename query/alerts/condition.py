"""The text of a condition of an alert, such as ``quantile(0.99, last='15m') > 500 and burn(300, 0.999) > 9``.

    condition   = comparison { "and" comparison }
    comparison  = question ("(" [argument {"," argument}] ")") operator value
    argument    = [name "="] value
    value       = number | text | "[" value {"," value} "]" | true | false
    operator    = > | >= | < | <=

Texts stand in ' or ", which is doubled inside. The text is parsed and never evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from tidemark.query.sql.calls import SIGNATURES, resolve_arguments
from tidemark.warehouse.columns.ticks import parse_duration
from tidemark.warehouse.errors import InputError, shortened

MOST_CHARACTERS = 10_000
_DIGITS = 400  # of a number, before and after the point
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?(?![\w.]))
      | (?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
      | (?P<name>[A-Za-z_]\w*)
      | (?P<sign>>=|<=|[><(),=\[\]])
    )""",
    re.VERBOSE,
)
Operator = Literal[">", ">=", "<", "<="]
# Questions of an alert that Reader has under another name: the question of Reader, and the field.
FIELDS = {
    "count": ("summary", "count"),
    "sum": ("summary", "sum"),
    "mean": ("summary", "mean"),
    "min": ("summary", "min"),
    "max": ("summary", "max"),
    "stddev": ("summary", "stddev"),
    "cdf": ("rank", "share"),
    "burn": ("rank", "burn"),
}
ASKED = ("quantile", "rank", "frequency", "distinct", "self_join")
QUESTIONS = (*ASKED, *FIELDS)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A question whose answer is compared with a threshold.

    text: the comparison as it was written.
    question: the method of Reader that is asked. given: its arguments, as `resolve_arguments` returns them.
    field: the number that is compared: None for the answer's own value; a field of a summary; "share", the
        share of the rows that are at most the value; or "burn", the burn rate: the share of the rows above
        the value, divided by the share that the objective allows there.
    objective: for a burn rate, the share of rows that should be at most the value.
    threshold: a number; for a measure of times the text of a time.
    least_rows: with fewer rows the comparison does not hold.
    lasting: microseconds that the condition has to hold before it counts.
    """

    text: str
    question: str
    given: dict[str, Any]
    operator: Operator
    threshold: Decimal | int | str
    field: str | None = None
    objective: Decimal | int | None = None
    least_rows: int = 0
    lasting: int = 0

    @property
    def window(self) -> int | None:
        """The microseconds of `last`; None without it, and where it is a number of steps."""
        last = self.given.get("last")
        return parse_duration(last) if isinstance(last, str) else None


def parse_condition(text: Any, measures: Sequence[str] = ()) -> tuple[Comparison, ...]:
    """The comparisons of a condition, which hold together; InputError if it is no condition.

    measures: the names of measures, which an argument without a name may be.

    ``for`` and ``least_rows`` are arguments of every question: ``quantile(0.99, last='5m', for='2m')``.
    """
    if not isinstance(text, str) or not text.strip() or len(text) > MOST_CHARACTERS:
        raise InputError(
            f"not a condition: {shortened(text)}. Expected text of at most {MOST_CHARACTERS:,} characters, "
            "such as \"quantile(0.99, last='15m') > 500\"."
        )
    words = _Words(text)
    found = [_comparison(words, measures)]
    while words.kind:
        words.take("name", "and")
        found.append(_comparison(words, measures))
    if len({tuple(one.given["by"]) for one in found if one.given.get("by")}) > 1:
        raise words.error("all comparisons with by= need the same columns there")
    return tuple(found)


class _Words:
    """The words of a text, one after the other: the kind and the text of the next one; "" at the end.

    start: where the next word begins. passed: where the last word that was taken ended.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._coming = self._read()
        self.kind, self.word = "", ""
        self.start = self._end = 0
        self.next()

    def next(self) -> str:
        word, self.passed = self.word, self._end
        self.kind, self.word, self.start, self._end = next(self._coming)
        return word

    def take(self, kind: str, *words: str) -> str:
        """Takes a word of that kind, one of `words` if there are some; InputError for another one."""
        if self.kind != kind or (words and self.word not in words):
            raise self.error(f"expected {' or '.join(map(repr, words)) or f'a {kind}'}")
        return self.next()

    def error(self, why: str) -> InputError:
        seen = shortened(self.word) if self.kind else "the end"
        return InputError(
            f"not a condition: {why}, got {seen} at character {self.start + 1} of {shortened(self.text)}. "
            "Conditions look like \"quantile(0.99, last='15m') > 500\"; questions are "
            f"{', '.join(QUESTIONS)}."
        )

    def _read(self) -> Iterator[tuple[str, str, int, int]]:
        at = 0
        end = len(self.text.rstrip())
        while at < end:
            match = _TOKEN.match(self.text, at)
            if match is None:
                start = at + len(self.text[at:]) - len(self.text[at:].lstrip())
                yield "unknown", self.text[start], start, start + 1
                return
            kind = str(match.lastgroup)
            yield kind, match[kind], match.start(kind), match.end()
            at = match.end()
        yield "", "", end, end


def _comparison(words: _Words, measures: Sequence[str]) -> Comparison:
    start = words.start
    name = words.take("name", *QUESTIONS)
    words.take("sign", "(")
    args, named = _arguments(words)
    operator: Any = words.take("sign", ">", ">=", "<", "<=")
    threshold = _unquoted(words.next()) if words.kind == "text" else _number(words)
    text = words.text[start : words.passed]
    least, duration = named.pop("least_rows", 0), named.pop("for", None)
    if not isinstance(least, int) or isinstance(least, bool) or least < 0:
        raise InputError(f"least_rows must be a number of rows, got {shortened(least)} in {shortened(text)}.")
    lasting = 0 if duration is None else parse_duration(duration)
    question, field = FIELDS.get(name, (name, None))
    objective = _objective(args, named, text) if name == "burn" else None
    if name == "rank" and not isinstance(threshold, str) and 0 < threshold < 1:
        field = "share"  # no number of rows lies between 0 and 1
    return Comparison(
        text,
        question,
        _resolved(question, measures, args, named, text),
        operator,
        threshold,
        field,
        objective,
        least,
        lasting,
    )


def _resolved(
    question: str, measures: Sequence[str], args: list[Any], named: dict[str, Any], text: str
) -> dict[str, Any]:
    """The arguments by name; InputError for arguments that the question lacks, or that alerts cannot have."""
    if SIGNATURES[question].subjects and args:
        named = {SIGNATURES[question].subjects[0]: args.pop(0), **named}
    refused = {"every", "width", "top", "order", "limit"} & named.keys()
    if refused:
        raise InputError(f"an alert has no {min(refused)}=, got {shortened(text)}.")
    try:
        given = resolve_arguments(question, measures, args, named)
    except InputError as error:
        raise InputError(f"{error} In {shortened(text)}.") from None
    subject = next(iter(SIGNATURES[question].subjects), None)
    if given is None or (subject and isinstance(given.get(subject), list)) or subject not in (None, *given):
        raise InputError(f"{question} of an alert needs one {subject}, got {shortened(text)}.")
    return given


def _objective(args: list[Any], named: dict[str, Any], text: str) -> Decimal | int:
    """Takes the share that a burn rate is about out of the arguments."""
    found = named.pop("objective", None) if "objective" in named else args.pop(1) if len(args) > 1 else None
    if not isinstance(found, Decimal | int) or isinstance(found, bool) or not 0 <= found < 1:
        raise InputError(
            f"burn needs the share of rows that should be at most the value, from 0 to below 1, such as "
            f"burn(300, 0.999, last='1h'), got {shortened(text)}."
        )
    return found


def _arguments(words: _Words) -> tuple[list[Any], dict[str, Any]]:
    """Positional and named arguments, and the closing parenthesis."""
    args: list[Any] = []
    named: dict[str, Any] = {}
    while words.word != ")" or words.kind != "sign":
        if args or named:
            words.take("sign", ",")
        if words.kind != "name" or words.word in ("true", "false"):
            if named:
                raise words.error("arguments without a name come first")
            args.append(_value(words))
            continue
        name = words.next()
        words.take("sign", "=")
        if name in named:
            raise words.error(f"{name} is given twice")
        named[name] = _value(words)
    words.next()
    return args, named


def _value(words: _Words) -> Any:
    if words.kind == "text":
        return _unquoted(words.next())
    if words.kind == "name" and words.word in ("true", "false"):
        return words.next() == "true"
    if words.kind == "sign" and words.word == "[":
        words.next()
        items: list[Any] = []
        while words.word != "]":
            if items:
                words.take("sign", ",")
            if words.word == "[":
                raise words.error("a list has no lists")
            items.append(_value(words))
        words.next()
        return items
    return _number(words)


def _number(words: _Words) -> Decimal | int:
    if words.kind != "number":
        raise words.error("expected a number or a text")
    number = Decimal(words.word)
    if len(words.word) > _DIGITS or abs(number.adjusted()) > _DIGITS:
        raise words.error(f"a number has at most {_DIGITS} digits")
    word = words.next()
    return int(word) if re.fullmatch(r"[+-]?\d+", word) else number


def _unquoted(word: str) -> str:
    return word[1:-1].replace(word[0] * 2, word[0])
