"""Which groups a question is about: from `where`, `by`, `top`, `groups` and `limit` to selections.

The columns of `where` and `by` together are those of one declared group, in any order. `where` fixes the
values of its columns, `by` asks for one answer for each value of its columns. Example: with the group
(origin, dest), ``where={"origin": ["ATL", "SEA"]}, by="dest"`` gives one answer for each destination, about
the rows of both origins together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from tidemark.query.groups.group_bounds import Selection
from tidemark.query.groups.group_order import GroupOrder, order_of
from tidemark.query.groups.group_slices import Group
from tidemark.warehouse.columns.keys import Key, Name
from tidemark.warehouse.columns.scalars import is_sequence, take_scalars
from tidemark.warehouse.errors import InputError, shortened, whole_number
from tidemark.warehouse.settings.options import Options

DEFAULT_LIMIT = 1000  # groups that `by` answers without `top` and `groups`
Values = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class GroupArguments:
    """The arguments of a question about groups, with scalars as Python values; None where not given."""

    where: Any = None
    by: Any = None
    top: Any = None
    groups: Any = None
    limit: Any = None
    order: Any = None
    least_rows: Any = None

    def __post_init__(self) -> None:
        take_scalars(self)

    def check(self) -> bool:
        """Whether the question is about groups. InputError for arguments that do not go together."""
        limits = {"top": self.top, "groups": self.groups, "limit": self.limit}
        given = {name: value for name, value in limits.items() if value is not None}
        others = {"order": self.order, "least_rows": self.least_rows}
        if self.by is None:
            for name, value in {**given, **others}.items():
                if value is None:
                    continue
                raise InputError(
                    f"{name}={shortened(value)} was given without by. Name the columns whose values are "
                    "asked one by one, for example by='dest'."
                )
        if len(given) > 1:
            raise InputError(f"{' and '.join(given)} exclude each other. Give one of them.")
        for name, value in given.items():
            if name != "groups":
                whole_number(name, value, 1)
        if self.least_rows is not None:
            whole_number("least_rows", self.least_rows, 1)
        return self.where is not None or self.by is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedGroups:
    """Which values of `by` a question is about, checked.

    top: how many. groups: those that the caller listed. limit: more groups than this are an error.
    order: the order of the answers, and the fewest rows of a group; None if neither was asked.
    """

    top: int | None
    groups: tuple[Values, ...] | None
    limit: int
    order: GroupOrder | None

    @property
    def largest(self) -> int | None:
        """How many groups are asked, if these are those with the most rows; None if others may be asked."""
        return self.top if self.order is None else None

    @property
    def least_rows(self) -> int:
        """How many rows a group needs to be answered; 0 where that is not asked."""
        return self.order.least_rows if self.order else 0

    def check_limit(self, groups: int, by: Iterable[str]) -> None:
        """InputError for more groups than the limit, if all that have rows are asked."""
        if self.top is None and groups > self.limit:
            raise InputError(
                f"the window has {groups:,} groups by {', '.join(by)}, more than limit={self.limit:,}. Ask "
                "for the largest with top=20, for some with groups=[...], or raise the limit."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChoice(AskedGroups):
    """A question about groups, checked.

    keys: the columns of the declared group, in its order.
    where: for some of the columns, the names that rows must have. given: the caller's `where`.
    by: the columns with one answer per value, in the caller's order; empty for one answer in all.
    """

    keys: tuple[Key, ...]
    where: Mapping[str, frozenset[Name]]
    given: Mapping[str, Any]
    by: tuple[Key, ...]

    def selection(self, values: Values) -> Selection:
        """The groups whose values of the `by` columns are these: one for each combination of `where`."""
        fixed = dict(zip((key.name for key in self.by), values, strict=True))
        names: list[list[Name]] = []
        for key in self.keys:
            allowed = self.where.get(key.name)
            if key.name in fixed:
                name = key.name_of(fixed[key.name])
                names.append([] if name is None or (allowed is not None and name not in allowed) else [name])
            else:
                names.append(sorted(allowed or ()))
        return tuple(product(*names))

    def admits(self, group: Group) -> bool:
        """Whether a group has the values that `where` asks for."""
        return all(
            name in self.where[key.name]
            for key, name in zip(self.keys, group, strict=True)
            if key.name in self.where
        )

    def by_names(self, group: Group) -> Group:
        """The names of the `by` columns in a group."""
        names = dict(zip((key.name for key in self.keys), group, strict=True))
        return tuple(names[key.name] for key in self.by)

    def by_values(self, group: Group) -> Values:
        """The values of the `by` columns in a group."""
        return tuple(key.value_of(name) for key, name in zip(self.by, self.by_names(group), strict=True))

    def shown(self, values: Values) -> dict[str, Any]:
        """The group as answers show it: the values of `where` and of the `by` columns."""
        by = dict(zip((key.name for key in self.by), values, strict=True))
        return {**self.given, **by}


def choose_group(options: Options, arguments: GroupArguments) -> GroupChoice | None:
    """Checks the arguments of a question about groups; None if no declared group has these columns.

    Raises InputError for malformed arguments, and for a value that does not fit the type of its column.
    """
    by = by_columns(arguments.by)
    if isinstance(arguments.where, str):
        return None
    where = where_values(arguments.where)
    wanted = frozenset([*where, *by])
    keys = next(
        (keys for keys in options.groups if frozenset(key.name for key in keys) == wanted),
        None,
    )
    if keys is None:
        return None
    types = {key.name: key for key in keys}
    return GroupChoice(
        keys=keys,
        where={column: _names(types[column], values) for column, values in where.items()},
        given={column: values[0] if len(values) == 1 else values for column, values in where.items()},
        by=tuple(types[column] for column in by),
        top=arguments.top,
        groups=None if arguments.groups is None else given_groups(by, arguments.groups),
        limit=arguments.limit or DEFAULT_LIMIT,
        order=order_of(arguments.order, arguments.top, arguments.least_rows),
    )


def by_columns(by: Any) -> tuple[str, ...]:
    """The columns that `by` names; none for None. InputError for anything but names, each once."""
    columns = (by,) if isinstance(by, str) else () if by is None else by
    if not is_sequence(columns):
        raise InputError(f"by must be the name of a column or a list of names, got {shortened(by)}.")
    names = tuple(columns)
    if (by is not None and not names) or not all(isinstance(name, str) for name in names):
        raise InputError(f"by must be the name of a column or a list of names, got {shortened(by)}.")
    if len(set(names)) < len(names):
        raise InputError("by names a column, or an expression, twice. Name each once.")
    return names


def where_values(where: Any) -> dict[str, list[Any]]:
    """The allowed values of each column; none for None. InputError for anything but a mapping."""
    if where is None:
        return {}
    if not isinstance(where, Mapping) or not where or not all(isinstance(name, str) for name in where):
        raise InputError(
            "where must map columns to a value or a list of values, or be a condition as text, got "
            f"{shortened(where)}. Examples: where={{'origin': 'ATL'}}, where=\"distance > 500\"."
        )
    return {column: _as_list(column, values) for column, values in where.items()}


def _as_list(column: str, values: Any) -> list[Any]:
    given = list(values) if is_sequence(values) else [values]
    if not given or any(value is None for value in given):
        raise InputError(
            f"where[{shortened(column)}] is {shortened(values)}, expected a value or a list of values. A row "
            "with NULL in a column of a group belongs to no group."
        )
    return given


def _names(key: Key, values: Sequence[Any]) -> frozenset[Name]:
    names = (key.name_of(value) for value in values)
    return frozenset(name for name in names if name is not None)


def given_groups(by: Sequence[str], groups: Any) -> tuple[Values, ...]:
    """The groups as tuples with a value of each `by` column. InputError for anything else."""
    if not is_sequence(groups):
        raise InputError(f"groups must be a list of values of {', '.join(by)}, got {shortened(groups)}.")
    found = []
    for group in groups:
        several = isinstance(group, (tuple, list))
        values = tuple(group) if several else (group,)
        if len(values) != len(by) or any(value is None for value in values):
            raise InputError(
                f"groups has {shortened(group)}, expected {len(by)} value{'s' if len(by) > 1 else ''}, of "
                f"{', '.join(by)}. A row with NULL there belongs to no group."
            )
        found.append(values)
    return tuple(found)
