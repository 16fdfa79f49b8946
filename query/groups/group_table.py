"""All groups of some rows as a table: the names of each column, and for each group the codes of its names.

Groups are found and chosen by codes, in arrays: a group becomes an object only when somebody takes out its
answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tidemark.query.answers.answer_columns import Computed
from tidemark.query.groups.group_bounds import Selection
from tidemark.query.groups.group_choice import GroupChoice
from tidemark.warehouse.columns.codes import Ints, combine_codes, places_among
from tidemark.warehouse.columns.keys import Names, find_names, name_at, names_from, unify_names


@dataclass(frozen=True, slots=True, eq=False)
class GroupTable:
    """Groups, ascending and each once.

    names: for each column the names that groups may have, ascending. codes: (groups,) for each column the
        index of each group's name.
    places: for each part of the rows (stretches,) the group of each stretch.
    """

    names: tuple[Names, ...]
    codes: tuple[Ints, ...]
    places: tuple[Ints, ...]

    @classmethod
    def of(cls, parts: Sequence[tuple[Names, ...]]) -> GroupTable:
        """The groups of all parts, at least one; a part has one column of names for each column.

        O(k log k) for k stretches in all.
        """
        columns = [unify_names(column) for column in zip(*parts, strict=True)]
        names = tuple(names for names, _ in columns)
        codes = [np.concatenate(of_parts) for _, of_parts in columns]
        combined = combine_codes(codes, [len(column) for column in names])
        _, firsts, groups = np.unique(combined, return_index=True, return_inverse=True)
        edges = np.cumsum([len(of_part) for of_part in columns[0][1]])[:-1]
        return cls(names, tuple(column[firsts] for column in codes), tuple(np.split(groups, edges)))

    def __len__(self) -> int:
        return len(self.codes[0])

    @property
    def nbytes(self) -> int:
        """The memory of the table."""
        return int(sum(array.nbytes for array in (*self.names, *self.codes, *self.places)))

    def find(self, choice: GroupChoice, selections: Sequence[Selection]) -> Ints:
        """(groups,) the number of the selection that has each group; -1 for none. They share no group."""
        wanted = [group for selection in selections for group in selection]
        owners = np.repeat(np.arange(len(selections)), [len(selection) for selection in selections])
        found = [
            find_names(names, names_from(key, [group[place] for group in wanted]))
            for place, (key, names) in enumerate(zip(choice.keys, self.names, strict=True))
        ]
        known = np.flatnonzero(np.logical_and.reduce([codes >= 0 for codes in found]))
        joined = [np.concatenate([mine, codes[known]]) for mine, codes in zip(self.codes, found, strict=True)]
        combined = combine_codes(joined, [len(names) for names in self.names])
        at = places_among(combined[: len(self)], combined[len(self) :])
        numbers = np.full(len(self), -1, np.int64)
        numbers[at[at >= 0]] = owners[known][at >= 0]
        return numbers

    def by_values(self, choice: GroupChoice) -> tuple[Ints, Sequence[Mapping[str, Any]]]:
        """The place of each group among all (groups,) in the order of the columns of `by`; and all in it.

        The columns of `by` are all columns of the group.
        """
        columns = [choice.keys.index(key) for key in choice.by]
        order = np.lexsort([self.codes[place] for place in reversed(columns)])
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        named = [(self.names[place], self.codes[place][order]) for place in columns]
        return places, Computed(range(len(self)), partial(_shown, choice, named))


def _shown(choice: GroupChoice, named: Sequence[tuple[Names, Ints]], at: int) -> Mapping[str, Any]:
    """The group with this number as answers show it."""
    values = zip(choice.by, named, strict=True)
    return choice.shown(tuple(key.value_of(name_at(names, int(codes[at]))) for key, (names, codes) in values))
