"""Values that an expression computes, in the place of a measure or of a column of `by`.

The name of a computed value is the text of its expression. If that uses private columns, the name is the SQL
that runs, which has tokens in place of values. A text that names a column is that column, and a text that
could be a name is never taken for an expression: a mistyped name is an error that lists the columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from tidemark.query.scans.expressions import Expression, checked_expression, checked_values
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.private.secrets import takes_tokens_alone
from tidemark.warehouse.settings.options import Options

KNOWN_EXPRESSIONS = 256  # of 10 KB at most: to check one takes longer than many scans


def computed_values(options: Options, name: Any) -> Expression | None:
    """The checked expression that a name of a measure or column is; None for a name.

    InputError for text that is no name and no expression over the columns.
    """
    if not isinstance(name, str) or name in dict(options.columns) or name.isidentifier():
        return None
    if not options.columns or name in options.measure_names:
        return None
    return _known_expression(name, tuple(options.columns), takes_tokens_alone(), are_values=True)


def known_condition(options: Options, text: str) -> Expression:
    """The checked expression of a condition. InputError as `checked_expression`."""
    return _known_expression(text, tuple(options.columns), takes_tokens_alone(), are_values=False)


def asked_measure(options: Options, name: str | None) -> Measure:
    """The measure of a question: a column, or what an expression computes. InputError for neither."""
    computed = computed_values(options, name)
    return options.measure(name) if computed is None else Measure(computed.text, str(computed.type))


def shown_names(options: Options, names: Iterable[str]) -> tuple[str, ...]:
    """Names of columns, and of computed values, as answers have them."""
    found = ((name, computed_values(options, name)) for name in names)
    return tuple(name if one is None else one.text for name, one in found)


@lru_cache(KNOWN_EXPRESSIONS)  # a dashboard asks with the same expressions again and again
def _known_expression(
    text: str,
    columns: tuple[tuple[str, str], ...],
    only_tokens: bool,  # noqa: ARG001  with it another text is refused
    *,
    are_values: bool,
) -> Expression:
    """The expression that a text is, of values that are ranked or grouped, or of a condition."""
    return checked_values(text, dict(columns)) if are_values else checked_expression(text, dict(columns))
