"""The arguments of a question that a scan of `events` answers, checked: which rows, groups and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.query.groups.group_choice import (
    DEFAULT_LIMIT,
    AskedGroups,
    GroupArguments,
    Values,
    by_columns,
    given_groups,
    where_values,
)
from tidemark.query.groups.group_order import order_of
from tidemark.query.scans.computed import asked_measure, computed_values, known_condition, shown_names
from tidemark.query.scans.expressions import Expression
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.settings.options import Options


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanChoice(AskedGroups):
    """A question that is answered by a scan, checked as far as that needs no table.

    equal: the allowed values of columns. expression: a condition, or None.
    by: the columns of the groups.
    declare: the columns of the group that would answer the question without a scan; None if none would.
    measure: the computed measure, if an expression stands in the place of a measure; else None.
    computed: the expressions of the measure and of `by`, by their text.
    """

    equal: Mapping[str, Sequence[Any]]
    expression: Expression | None
    by: tuple[str, ...]
    declare: tuple[str, ...] | None
    measure: Measure | None
    computed: Mapping[str, Expression]

    def shown(self, values: Values) -> dict[str, Any]:
        """The group as answers show it: the condition, and the values of the columns."""
        where = {"where": self.expression.text} if self.expression else {}
        equal = {name: given[0] if len(given) == 1 else list(given) for name, given in self.equal.items()}
        return {**where, **equal, **dict(zip(self.by, values, strict=False))}

    def equal_of(self, keys: Sequence[Key]) -> dict[str, Sequence[Any]]:
        """The allowed values of columns, also by the groups that the caller listed: only their rows count.

        keys: the columns of `by`.
        """
        equal = dict(self.equal)
        for place, name in enumerate(self.by if self.groups is not None else ()):
            wanted = [group[place] for group in self.groups or ()]
            allowed = {keys[place].name_of(value) for value in equal.get(name, wanted)}
            equal[name] = [value for value in wanted if keys[place].name_of(value) in allowed]
        return equal

    def picked(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The groups that are answered, of groups with so many rows; InputError for more than the limit."""
        order = np.flatnonzero(rows >= self.least_rows)
        if self.largest is not None:
            order = order[np.argsort(-rows[order], kind="stable")[: self.largest]]
        self.check_limit(len(order), self.by)
        return order


def choose_scan(options: Options, arguments: GroupArguments, measure: str | None) -> ScanChoice:
    """Checks the arguments of a question that is answered by a scan.

    Raises InputError for a condition, and for values, that are not one expression over the columns.
    """
    names = by_columns(arguments.by)
    by = by_columns(shown_names(options, names) or None)
    found = {name: one for name in (measure, *names) if (one := computed_values(options, name))}
    computed = {one.text: one for one in found.values()}
    expression, equal = None, {}
    if isinstance(arguments.where, str):
        expression = known_condition(options, arguments.where)
    else:
        equal = where_values(arguments.where)
    return ScanChoice(
        equal=equal,
        expression=expression,
        by=by,
        top=arguments.top,
        groups=None if arguments.groups is None else given_groups(by, arguments.groups),
        limit=arguments.limit or DEFAULT_LIMIT,
        declare=None if expression or computed else tuple(dict.fromkeys([*by, *equal])),
        order=order_of(arguments.order, arguments.top, arguments.least_rows),
        measure=asked_measure(options, measure) if measure in found else None,
        computed=computed,
    )


def names_in(keys: Sequence[Key], values: Values) -> tuple[Any, ...]:
    """The names of the values of columns."""
    return tuple(key.name_of(value) for key, value in zip(keys, values, strict=True))
