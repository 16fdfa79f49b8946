"""How `alter`, and batches with new columns, change the options: pure functions, from options to options.

    declared   measures, keys, groups and indexes that are added, and other options that get a new value
    without    measures, keys, groups and indexes that are dropped
    with_added_columns
               columns that batches bring later
    widened    columns that get a wider type

If there is nothing to change, they return the given options, so that a call which is repeated ends.
`change_options` commits what such a function returns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidemark.option_table import OPTIONS, SETTINGS
from tidemark.warehouse.columns.column_types import find_column_type, is_wider, sql_column_type
from tidemark.warehouse.delta.changes import NewProperties
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, group_folder, index_runs_table, runs_table
from tidemark.warehouse.errors import InputError, shortened
from tidemark.warehouse.settings import features
from tidemark.warehouse.settings.allowed_columns import check_folders
from tidemark.warehouse.settings.given_options import Columns, columns_of_key, fields_of, parse_options
from tidemark.warehouse.settings.option_kinds import KINDS
from tidemark.warehouse.settings.options import Options, read_options
from tidemark.warehouse.settings.renames import new_names, renamed


@dataclass(frozen=True, slots=True)
class Asked:
    """The changes that a call of `alter` asks for; None stands for an argument that is not given.

    add_measure, drop_measure, drop_index
                                the name of a column
    add_index                   a column, and those that its index has beside it
    add_key, drop_key, add_group, drop_group
                                the columns of a key
    widen                       Delta's names of wider types, by the names of columns
    rename                      new names, by the names of columns
    rotate_secret               whether tokens get the newest secret
    settings                    stored forms of other options, by the options' names
    """

    add_measure: str | None = None
    add_key: Columns | None = None
    add_group: Columns | None = None
    add_index: Columns | None = None
    drop_measure: str | None = None
    drop_key: Columns | None = None
    drop_group: Columns | None = None
    drop_index: str | None = None
    widen: Mapping[str, str] = field(default_factory=dict)
    rename: Mapping[str, str] = field(default_factory=dict)
    rotate_secret: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        *,
        widen: Mapping[str, str] | None = None,
        rename: Mapping[str, str] | None = None,
        rotate_secret: bool = False,
        **given: Any,
    ) -> Asked:
        """The arguments of `alter`, checked as far as that needs no warehouse; InputError for others."""
        settings = {name: given.pop(name) for name in SETTINGS if name in given}
        stored = {name: value for name, value in parse_options(**settings).items() if value is not None}
        asked = cls(**given)
        new_index = None if asked.add_index is None else _index_of(asked.add_index)
        others = stored or widen or any(one is not None for one in given.values())
        if rename is not None or rotate_secret:
            if others or (rename is not None and rotate_secret):
                what = "rename" if rename is not None else "rotate_secret"
                raise InputError(f"{what} goes alone: make two calls. Nothing was changed.")
            return cls(rotate_secret=True) if rename is None else cls(rename=new_names(rename))
        if not others:
            raise InputError(
                "alter needs something to change: add_measure, add_key, add_group, add_index, drop_measure, "
                f"drop_key, drop_group, drop_index, widen, rename, rotate_secret, {' or '.join(SETTINGS)}."
            )
        names = {
            "a measure": (asked.add_measure, asked.drop_measure),
            "an index": (new_index and new_index[0], asked.drop_index),
        }
        for what, pair in names.items():
            for name in pair:
                if name is not None and not (isinstance(name, str) and name):
                    raise InputError(f"{what} is the name of a column, got {shortened(name)}.")
        keys = ("add_key", "add_group", "drop_key", "drop_group")
        columns: dict[str, Any] = {
            name: columns_of_key(given[name]) for name in keys if given.get(name) is not None
        }
        sets = {name: frozenset(one) for name, one in columns.items()}
        of_keys = [(sets.get(f"add_{what}"), sets.get(f"drop_{what}")) for what in ("key", "group")]
        for new, old in (*names.values(), *of_keys):
            if new is not None and new == old:
                raise InputError(f"the same is added and dropped: {shortened(new)}. Make two calls of it.")
        wider = _types_by_name(widen)
        return replace(asked, **columns, add_index=new_index, widen=wider, settings=stored)

    @property
    def drops(self) -> bool:
        """Whether anything is dropped."""
        dropped = (self.drop_measure, self.drop_key, self.drop_group, self.drop_index)
        return any(one is not None for one in dropped)


def declared(options: Options, asked: Asked, newest_step: Callable[[], int]) -> Options:
    """The options with what is added or renamed, and the values that are asked for; InputError as `alter`.

    newest_step   finds the newest step that is planned, of which what is added has to be built
    """
    if asked.rename:  # a rename goes alone
        return renamed(options, asked.rename)
    measures, keys, groups = options.measure_names, options.own_keys, options.group_names
    beside = dict(options.features)
    if asked.add_measure is not None and asked.add_measure not in measures:
        measures = (*measures, asked.add_measure)
        KINDS["names"].check(OPTIONS["measures"], list(measures))
        beside[features.ADDED_MEASURES] = features.KNOWN[features.ADDED_MEASURES]
    if asked.add_key is not None and _place(options.key_names, asked.add_key) is None:
        # The keys that there are come first, so that the default of questions stays the same.
        keys = (*options.key_names, asked.add_key)
    if asked.add_group is not None and _place(groups, asked.add_group) is None:
        groups = (*groups, asked.add_group)
    indexes = options.index_columns
    if asked.add_index is not None and asked.add_index not in indexes:
        _check_new_index(options, asked.add_index)
        indexes = (*indexes, asked.add_index)
        KINDS["indexes"].check(OPTIONS["index"], KINDS["indexes"].as_stored(indexes))
        beside[features.INDEX] = features.KNOWN[features.INDEX]
    wanted = replace(
        options,
        measure_names=measures,
        own_keys=keys,
        group_names=groups,
        index_columns=indexes,
        features=beside,
        **fields_of(asked.settings),
    )
    if wanted == options:
        return options
    if wanted.kappa != options.kappa:
        wanted = replace(wanted, least_kappa=min(options.smallest_kappa, wanted.kappa))
    if (wanted.eps, wanted.key_eps) != (options.eps, options.key_eps):
        wanted = wanted.with_feature(features.CHANGED_EPS)
    stored_of = wanted.names.stored_of
    folders = [*wanted.key_names, *wanted.index_columns]
    check_folders(stored_of(wanted.measure_names), map(stored_of, folders))
    wanted.check_retention()
    if wanted.columns:
        wanted.check_columns(dict(wanted.columns))
    known = _runs_tables(options)
    new = [name for name in _runs_tables(wanted) if name not in known]
    built_from = dict.fromkeys(new, newest_step()) if new else {}
    return replace(
        wanted,
        built_from={**options.built_from, **built_from},
        dropped={name: moment for name, moment in options.dropped.items() if name not in new},
    )


def without(options: Options, asked: Asked, now_us: int) -> Options:
    """The options without the parts to be dropped; InputError for a part that was never there.

    The key of a group that is dropped stays, and so does the order of the keys.
    """
    measures, keys, groups = options.measure_names, options.own_keys, options.group_names
    if asked.drop_measure is not None and asked.drop_measure in measures:
        measures = tuple(name for name in measures if name != asked.drop_measure)
        if not measures:
            raise InputError(
                f"{asked.drop_measure!r} is the only measure, and a warehouse has at least one. Add another "
                "one first."
            )
    elif asked.drop_measure is not None:
        _check_was_dropped(
            options, f"measure {asked.drop_measure!r}", runs_table(options.names.stored(asked.drop_measure))
        )
    if asked.drop_group is not None and (place := _place(groups, asked.drop_group)) is not None:
        keys, groups = options.key_names, (*groups[:place], *groups[place + 1 :])
    elif asked.drop_group is not None:
        folder = f"group_runs/{_folder(options, asked.drop_group)}/"
        _check_was_dropped(options, f"group {' and '.join(asked.drop_group)}", folder)
    if asked.drop_key is not None and (place := _place(keys, asked.drop_key)) is not None:
        keys = (*keys[:place], *keys[place + 1 :])
    elif asked.drop_key is not None and _place(groups, asked.drop_key) is None:
        _check_was_dropped(
            options, f"key {' and '.join(asked.drop_key)}", f"keys/{_folder(options, asked.drop_key)}"
        )
    if asked.drop_key is not None and _place(groups, asked.drop_key) is not None:
        raise InputError(
            f"{' and '.join(asked.drop_key)} is a group, and a group is a key, too. Drop the group with it: "
            "drop_group."
        )
    indexes = _indexes_left(options, asked.drop_index)
    wanted = replace(
        options, measure_names=measures, own_keys=keys, group_names=groups, index_columns=indexes
    )
    left = _runs_tables(wanted)
    gone = [name for name in _runs_tables(options) if name not in left]
    return replace(
        wanted,
        built_from={name: step for name, step in options.built_from.items() if name not in gone},
        dropped={**options.dropped, **dict.fromkeys(gone, now_us)},
    )


def _index_of(given: Any) -> Columns:
    """The column of a new index, and the included columns; InputError if the argument names none."""
    stored = KINDS["indexes"].parse([given])
    KINDS["indexes"].check(OPTIONS["index"], stored)
    (columns,) = KINDS["indexes"].as_field(stored)
    found: Columns = columns
    return found


def _check_new_index(options: Options, columns: Columns) -> None:
    for on, *beside in options.index_columns:
        if on == columns[0]:
            has = f"includes {', '.join(beside)}" if beside else "includes no columns"
            raise InputError(
                f"the column {on!r} has an index that {has}. Drop it first, in a call of its own: "
                f"drop_index={on!r}."
            )


def _indexes_left(options: Options, dropped: str | None) -> tuple[Columns, ...]:
    """The indexes without the one that is dropped; InputError if it never was there."""
    if dropped is not None and dropped not in [on for on, *_ in options.index_columns]:
        alone = index_runs_table([options.names.stored(dropped)])
        table = next((name for name in options.dropped if name.startswith(f"{alone}.")), alone)
        _check_was_dropped(options, f"index {dropped!r}", table)
    return tuple(columns for columns in options.index_columns if columns[0] != dropped)


def with_added_columns(options: Options, names: Iterable[str], now_us: int) -> Options:
    """The options that say of columns that batches may lack them; the columns themselves come after.

    A column whose name is the stored one of another gets a free stored name.
    """
    new = {name: now_us for name in names if name not in options.added_columns}
    if not new:
        return options
    taken, own_names = options.names.stored_of(name for name, _ in options.columns), {}
    taken += [earlier[0] for earlier in options.earlier_names.values()]  # also of columns that are to come
    for name in new:
        stored = options.names.free(name, taken)
        taken.append(stored)
        if stored != name:
            own_names[name] = [stored]
    return replace(
        options,
        added_columns={**options.added_columns, **new},
        earlier_names={**options.earlier_names, **own_names},
    ).with_feature(features.ADDED_COLUMNS)


def wider_types(options: Options, types: Mapping[str, str]) -> dict[str, str]:
    """The wider types that the columns do not have yet, as Delta's names by column.

    InputError for a column that is not there, that a companion summarises, or that is of a type that is no
    narrower one.
    """
    stored, found = dict(options.columns), {}
    for name, kind in types.items():
        if name not in stored:
            there = ", ".join(stored) or "none, until the first batch"
            raise InputError(f"there is no column {name!r} to widen. There are: {there}.")
        if stored[name] == kind:
            continue
        if not is_wider(kind, stored[name]):
            raise InputError(
                f"column {name!r} is {stored[name]} and cannot become {kind}. Expected a type that holds "
                "each of its values: integers of more bits, double for float, or a decimal of more digits "
                "with the same scale."
            )
        if any(companion.column == name for companion in options.companion_names):
            raise InputError(
                f"column {name!r} is summarised by a companion, whose summaries may depend on its type. It "
                "cannot be widened."
            )
        found[name] = kind
    return found


def wider_columns(options: Options, types: Mapping[str, str]) -> dict[str, str]:
    """The types of a batch that are wider than the stored ones, as Delta's names by column.

    A column that a companion summarises keeps its type.
    """
    stored, kept = dict(options.columns), {one.column for one in options.companion_names}
    return {
        name: kind
        for name, kind in types.items()
        if name in stored and name not in kept and is_wider(kind, stored[name])
    }


def widened(options: Options, types: Mapping[str, str]) -> Options:
    """The options with the wider types; InputError as `wider_types`, and for too many digits."""
    wider = wider_types(options, types)
    if not wider:
        return options
    columns = tuple((name, wider.get(name, kind)) for name, kind in options.columns)
    wanted = replace(options, columns=columns)
    wanted.check_columns(dict(columns))
    return wanted


def changed_properties(before: Options, after: Options) -> dict[str, str]:
    """The table properties of new options; properties that only the old options had are emptied."""
    new = after.properties()
    return {**{name: json.dumps({}) for name in before.properties() if name not in new}, **new}


def change_options(store: Store, wanted: Callable[[Options], Options]) -> bool:
    """Commits the options that are wanted in place of the present ones; False if these are the same."""
    race = Race(store, EVENTS)
    while (new := wanted(options := read_options(store, race.table))) != options:
        if race.change(NewProperties(changed_properties(options, new))):
            return True
    return False


def _check_was_dropped(options: Options, what: str, table: str) -> None:
    """InputError unless the part to be dropped was there, and an earlier call dropped it."""
    if any(name == table or (table.endswith("/") and name.startswith(table)) for name in options.dropped):
        return
    there = {
        "measure": list(options.measure_names),
        "index": [on for on, *_ in options.index_columns],
        "group": [" and ".join(columns) for columns in options.group_names],
        "key": [" and ".join(columns) for columns in options.key_names],
    }[what.split(" ", 1)[0]]
    raise InputError(f"no {what} here, so it cannot be dropped. There are: {', '.join(there) or 'none'}.")


def _types_by_name(widen: Any) -> dict[str, str]:
    """Delta's names of the types; InputError if the argument maps no names to types."""
    if widen is None:
        return {}
    if not isinstance(widen, Mapping) or not all(
        isinstance(text, str) and text for pair in widen.items() for text in pair
    ):
        raise InputError(
            f"widen must map columns to types, got {shortened(widen)}. Example: widen={{'qty': 'long'}}."
        )
    found = {}
    for name, text in widen.items():
        kind = sql_column_type(text.lower()) or find_column_type(text.lower())
        if kind is None:
            raise InputError(
                f"the type of {name} is {shortened(text)}, expected a plain type, such as bigint, double or "
                "decimal(12,2)."
            )
        found[name] = kind.name
    return found


def _folder(options: Options, columns: Columns) -> str:
    return group_folder(options.names.stored_of(columns))


def _runs_tables(options: Options) -> list[str]:
    return [one.runs_table for one in options.projections]


def _place(known: Sequence[Columns], columns: Columns) -> int | None:
    """The place of a key with these columns, in any order; None if there is none."""
    return next((i for i, one in enumerate(known) if set(one) == set(columns)), None)
