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
from tidemark.query.groups.group_slices import Group
from tidemark.warehouse.columns.keys import Key, Name
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.settings.options import Options

DEFAULT_LIMIT = 1000  # groups that `by` answers without `top` and `groups`
Values = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class GroupArguments:
    """The arguments of a question about groups, as the caller gave them; None where not given."""

    where: Any = None
    by: Any = None
    top: Any = None
    groups: Any = None
    limit: Any = None

    def check(self) -> bool:
        """Whether the question is about groups. InputError for arguments that do not go together."""
        if self.by is None:
            for name in ("top", "groups", "limit"):
                if getattr(self, name) is not None:
                    raise InputError(
                        f"{name}={getattr(self, name)!r} was given without by. Name the columns whose values "
                        "are asked one by one, for example by='dest'."
                    )
        given = [name for name in ("top", "groups", "limit") if getattr(self, name) is not None]
        if len(given) > 1:
            raise InputError(f"{' and '.join(given)} exclude each other. Give one of them.")
        for name in ("top", "limit"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InputError(f"{name} must be a whole number of at least 1, got {value!r}.")
        return self.where is not None or self.by is not None


@dataclass(frozen=True, slots=True)
class GroupChoice:
    """A question about groups, checked.

    keys: the columns of the declared group, in its order.
    where: for some of the columns the names that rows must have. given: the same as the caller gave it.
    by: the columns with one answer per value, in the caller's order; empty for one answer in all.
    """

    keys: tuple[Key, ...]
    where: Mapping[str, frozenset[Name]]
    given: Mapping[str, Any]
    by: tuple[Key, ...]
    top: int | None
    groups: tuple[Values, ...] | None
    limit: int

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


def choose_group(options: Options, arguments: GroupArguments) -> GroupChoice:
    """Checks the arguments of a question about groups.

    Raises InputError if no declared group has these columns, or a value does not fit the type of its column.
    """
    by = _by_columns(arguments.by)
    where = _where(arguments.where)
    wanted = frozenset([*where, *by])
    keys = next(
        (keys for keys in options.groups if frozenset(key.name for key in keys) == wanted),
        None,
    )
    if keys is None:
        raise _no_such_group(options, wanted)
    types = {key.name: key for key in keys}
    return GroupChoice(
        keys=keys,
        where={column: _names(types[column], values) for column, values in where.items()},
        given={column: values[0] if len(values) == 1 else values for column, values in where.items()},
        by=tuple(types[column] for column in by),
        top=arguments.top,
        groups=None if arguments.groups is None else _by_groups(by, arguments.groups),
        limit=arguments.limit or DEFAULT_LIMIT,
    )


def _by_columns(by: Any) -> tuple[str, ...]:
    columns = (by,) if isinstance(by, str) else () if by is None else by
    if not isinstance(columns, Iterable) or isinstance(columns, (bytes, Mapping)):
        raise InputError(f"by must be the name of a column or a list of names, got {by!r}.")
    names = tuple(columns)
    if (by is not None and not names) or not all(isinstance(name, str) for name in names):
        raise InputError(f"by must be the name of a column or a list of names, got {by!r}.")
    if len(set(names)) < len(names):
        raise InputError(f"by names a column twice: {by!r}. Name each column once.")
    return names


def _where(where: Any) -> dict[str, list[Any]]:
    if where is None:
        return {}
    if not isinstance(where, Mapping) or not where or not all(isinstance(name, str) for name in where):
        raise InputError(
            f"where must map columns to a value or a list of values, got {where!r}. "
            "Example: where={'origin': 'ATL'}."
        )
    return {column: _as_list(column, values) for column, values in where.items()}


def _as_list(column: str, values: Any) -> list[Any]:
    several = isinstance(values, Iterable) and not isinstance(values, (str, bytes, Mapping))
    given = list(values) if several and getattr(values, "ndim", 1) > 0 else [values]
    if not given or any(value is None for value in given):
        raise InputError(
            f"where[{column!r}] is {values!r}, expected a value or a list of values. A row with NULL in a "
            "column of a group belongs to no group."
        )
    return given


def _names(key: Key, values: Sequence[Any]) -> frozenset[Name]:
    names = (key.name_of(value) for value in values)
    return frozenset(name for name in names if name is not None)


def _by_groups(by: Sequence[str], groups: Any) -> tuple[Values, ...]:
    if not isinstance(groups, Iterable) or isinstance(groups, (str, bytes, Mapping)):
        raise InputError(f"groups must be a list of values of {', '.join(by)}, got {groups!r}.")
    found = []
    for group in groups:
        several = isinstance(group, (tuple, list))
        values = tuple(group) if several else (group,)
        if len(values) != len(by) or any(value is None for value in values):
            raise InputError(
                f"groups has {group!r}, expected {len(by)} value{'s' if len(by) > 1 else ''}, of "
                f"{', '.join(by)}. A row with NULL there belongs to no group."
            )
        found.append(values)
    return tuple(found)


def _no_such_group(options: Options, wanted: Iterable[str]) -> InputError:
    columns, known = sorted(wanted), [name for name, _ in options.columns]
    unknown = [name for name in columns if name not in known]
    if unknown and known:
        return InputError(f"no column {unknown[0]!r} here. There are: {', '.join(known)}.")
    declared = [" and ".join(names) for names in options.group_names]
    return InputError(
        f"no group of the columns {', '.join(columns)} is declared. "
        f"Declared: {'; '.join(declared) if declared else 'none'}. The columns of where and by together must "
        f"be those of one group: create the warehouse with groups=[{columns!r}]."
    )
