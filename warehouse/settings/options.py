"""The options of a warehouse, which are stored as properties of the table `events`; `alter` changes them.

`tidemark/option_table.py` has a row for each, option_kinds.py what their values are, given_options.py what
callers may give, and properties.py what is stored.

The types of the measures are the types of the columns of `events` in the same version of the table. A
warehouse that was created without a schema has no columns until its first batch adds them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from deltalake import DeltaTable

from tidemark.option_table import OPTIONS, Option
from tidemark.warehouse.columns.column_names import ColumnNames
from tidemark.warehouse.columns.column_types import token_type
from tidemark.warehouse.columns.composite_keys import CompositeKey, ReorderedKey
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.schema import column_types
from tidemark.warehouse.columns.ticks import TickGrid, from_epoch_us
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.companions.declared import Companion, Companions
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_facts import facts_of
from tidemark.warehouse.delta.table_names import EVENTS, PROPERTY_PREFIX, group_folder, runs_table
from tidemark.warehouse.errors import EmptyWindow, InputError, NotAWarehouse, OptionsMismatch, shortened
from tidemark.warehouse.private.secrets import REVEAL
from tidemark.warehouse.projections.companion_cells import CompanionCells
from tidemark.warehouse.projections.key_counts import KeyCounts
from tidemark.warehouse.projections.row_index import RowIndex
from tidemark.warehouse.projections.sorted_groups import SortedGroups
from tidemark.warehouse.projections.sorted_values import SortedValues
from tidemark.warehouse.runs.projection import Projection
from tidemark.warehouse.settings import allowed_columns, features
from tidemark.warehouse.settings.allowed_columns import SYSTEM_COLUMNS
from tidemark.warehouse.settings.given_options import Columns, columns_of_key, fields_of
from tidemark.warehouse.settings.option_kinds import KINDS
from tidemark.warehouse.settings.properties import BESIDE, damaged_property, read_beside, read_option
from tidemark.warehouse.sizes import DEFAULT, Tuning

FORMAT = 1


@dataclass(frozen=True)
class Options:
    """The options of a warehouse, and its columns.

    measure_names       the measures, at least one
    time                the name of the time column; None if there is none
    tick_us, grace_us   durations in microseconds; `tick_us` is None if there is no time column
    eps, kappa          the rank error, and the most runs of a level
    key_eps, key_delta  the error of live counts of keys, and the probability of a larger error
    retention_us        how long rows are kept, in microseconds; None: for ever
    own_keys            the columns of each key that is no group
    group_names         the columns of each group, by which the measures are sorted; groups are keys, too
    index_columns       of each index: its column, and then those that it has beside it
    companion_names     the companions: mergeable summaries of kinds that users register
    built_from          of `steps`: a step that repair plans anew, before which no question is answered;
                        of runs tables that were added later: the newest step that was planned by then. All
                        steps up to it are needed for questions
    dropped             by runs table of what was dropped: when, in microseconds since 1970
    least_kappa         the smallest kappa so far, with which merges that have not ended may work; None if
                        it never changed
    horizon             the tick before which rows have expired; None before the first expiry. It only rises
    added_columns       by name of the columns that came after the first batch: when, in microseconds since
                        1970. Older files lack them, and batches may lack them: these rows have NULL there
    earlier_names       by name of the columns that were renamed, or that were added under a name which is the
                        stored one of another column: the stored name, then other names that they had
    private             the columns that have tokens in place of values
    fingerprint         the fingerprint of their secret, or secrets; empty without private columns
    rotation            a newer secret, which takes effect once the table has its columns (rotate.py)
    features            what only versions after 0.2.0 know, and the first version that does (features.py)
    columns             pairs of the user's columns and Delta's names of their types; empty until the first
                        batch if the warehouse was created without a schema
    tuning              the tuning of the store that the options were read from; it is not stored
    """

    measure_names: tuple[str, ...]
    time: str | None
    tick_us: int | None
    eps: float
    kappa: int
    grace_us: int
    columns: tuple[tuple[str, str], ...] = ()
    key_eps: float = OPTIONS["key_eps"].default
    key_delta: float = OPTIONS["key_delta"].default
    retention_us: int | None = None
    own_keys: tuple[Columns, ...] = ()
    group_names: tuple[Columns, ...] = ()
    index_columns: tuple[Columns, ...] = ()
    companion_names: tuple[Companion, ...] = ()
    built_from: Mapping[str, int] = field(default_factory=dict, hash=False)
    dropped: Mapping[str, int] = field(default_factory=dict, hash=False)
    added_columns: Mapping[str, int] = field(default_factory=dict, hash=False)
    earlier_names: Mapping[str, Sequence[str]] = field(default_factory=dict, hash=False)
    features: Mapping[str, str] = field(default_factory=dict, hash=False)
    least_kappa: int | None = None
    horizon: int | None = None
    private: tuple[str, ...] = ()
    fingerprint: str = ""
    rotation: Mapping[str, Any] = field(default_factory=dict, hash=False)
    tuning: Tuning = field(default=DEFAULT, compare=False)

    @property
    def grid(self) -> TickGrid | None:
        """How time is cut into ticks; None without a time column."""
        return None if self.tick_us is None else TickGrid(self.tick_us, self.horizon)

    @property
    def smallest_kappa(self) -> int:
        """The smallest kappa so far. Earlier versions change kappa and leave `least_kappa` as it is."""
        return min(self.least_kappa or self.kappa, self.kappa)

    @property
    def reveals(self) -> bool:
        """Whether tokens of private columns are sealed values."""
        return self.fingerprint.startswith(REVEAL)

    @property
    def expired_before(self) -> datetime | None:
        """The time before which rows have expired; None if none ever did."""
        grid = self.grid
        return None if grid is None or grid.horizon is None else from_epoch_us(grid.start_of(grid.horizon))

    @cached_property
    def names(self) -> ColumnNames:
        """The names of the columns, and their stored names."""
        pairs = ((name, stored[0]) for name, stored in self.earlier_names.items())
        renamed = tuple((name, stored) for name, stored in pairs if name != stored)
        there = (name for name, _ in self.columns if name in self.private)
        stored_of = ColumnNames(renamed).stored_of
        return ColumnNames(renamed, frozenset(stored_of(there)))

    def told_renamed(self, names: Iterable[Any]) -> str:
        """A sentence for each name that was one of a column, with the present name; empty if none was."""
        there = dict(self.columns)
        return "".join(
            f" {old!r} was renamed: it is {shortened(name)} now."
            for old in names
            for name, earlier in self.earlier_names.items()
            if old not in there and name in there and old in earlier
        )

    @cached_property
    def measures(self) -> tuple[Measure, ...]:
        """The measures with their types; empty until the columns are known."""
        return tuple(map(self._measure, self.measure_names)) if self.columns else ()

    def _measure(self, name: str) -> Measure:
        return Measure(name, dict(self.columns)[name], self.names.stored(name))

    def _key(self, name: str) -> Key:
        return Key(name, dict(self.columns)[name], self.names.stored(name))

    @cached_property
    def key_names(self) -> tuple[Columns, ...]:
        """The columns of each key, each key once: `own_keys`, then the groups."""
        found: dict[frozenset[str], Columns] = {}
        for columns in (*self.own_keys, *self.group_names):
            found.setdefault(frozenset(columns), columns)
        return tuple(found.values())

    @property
    def dropped_measures(self) -> list[str]:
        """The runs tables of measures that were dropped."""
        return [name for name in self.dropped if name.startswith("runs/")]

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The names of the columns that are part of a key, each once."""
        return tuple(dict.fromkeys(name for columns in self.key_names for name in columns))

    @cached_property
    def groups(self) -> tuple[tuple[Key, ...], ...]:
        """The columns of each group with their types; empty until the columns are known."""
        if not self.columns:
            return ()
        return tuple(tuple(map(self._key, columns)) for columns in self.group_names)

    @property
    def companions(self) -> Companions:
        """The companions, with those of their kinds that this process has registered."""
        return Companions.of(self.companion_names, self.time_column)

    @property
    def projections(self) -> tuple[Projection[Any], ...]:
        """The projections of history in the order in which they are loaded."""
        values = [SortedValues(measure, self.tuning) for measure in self.measures]
        cells = [CompanionCells(companions=self.companions)] if self.companions and self.columns else []
        return (*values, *cells, *self.key_counts, *self.sorted_groups, *self.indexes)

    @cached_property
    def indexes(self) -> tuple[RowIndex, ...]:
        """The projection of each index; empty until the columns are known."""
        return tuple(
            RowIndex.on([*map(self._key, columns)], self.tuning)
            for columns in (self.index_columns if self.columns else ())
        )

    @cached_property
    def key_counts(self) -> tuple[KeyCounts, ...]:
        """The projection of each key, in the order of `key_names`; empty until the columns are known."""
        counts = []
        for names in self.key_names if self.columns else ():
            parts = [self._key(name) for name in names]
            key = parts[0] if len(parts) == 1 else CompositeKey.of(parts)
            ticks_a_day = None if self.grid is None else self.grid.ticks_a_day
            counts.append(KeyCounts(key, self.tuning, ticks_a_day))
        return tuple(counts)

    @property
    def keys(self) -> tuple[Key, ...]:
        """Every key with its types, the first one is the default; empty until the columns are known."""
        return tuple(counts.key for counts in self.key_counts)

    @property
    def key_fields(self) -> list[str]:
        """The fields of the ledger's column `keys`, one for each key."""
        return [group_folder(self.names.stored_of(columns)) for columns in self.key_names]

    def key_count(self, columns: Any = None) -> KeyCounts:
        """The projection of the key with these columns in any order, or of the first key if None.

        `columns` is a name or an iterable of names. InputError if there is no such key, or no key or no rows
        at all.
        """
        wanted = None if columns is None else frozenset(columns_of_key(columns))
        declared = [" and ".join(declared) for declared in self.key_names]
        if not declared:
            raise InputError(
                "the warehouse was created without a key. Add one: `tidemark alter --add-key COLUMN`."
            )
        if wanted is not None and wanted not in map(frozenset, self.key_names):
            raise InputError(
                f"no key {' and '.join(sorted(wanted))} here. Declared: {'; '.join(declared)}. Add "
                f"one: `tidemark alter --add-key {','.join(sorted(wanted))}`.{self.told_renamed(wanted)}"
            )
        if not self.columns:
            raise InputError("the warehouse has no rows yet: its first batch will fix the columns' types.")
        return next(
            counts for counts in self.key_counts if wanted is None or frozenset(counts.key.columns) == wanted
        )

    def key_named(self, columns: Any = None) -> Key:
        """The key that `key_count` finds; the values of one of several columns are in the order given here.

        A set has no order: then it is the declared one.
        """
        key = self.key_count(columns).key
        is_set = columns is None or isinstance(columns, (set, frozenset))
        return key if is_set else ReorderedKey.as_named(key, columns_of_key(columns))

    @cached_property
    def sorted_groups(self) -> tuple[SortedGroups, ...]:
        """The projection of each measure by each group."""
        return tuple(
            SortedGroups(keys, measure, self.tuning) for keys in self.groups for measure in self.measures
        )

    def own_group(self, projection: Any) -> Any:
        """The projection of a group as this warehouse has it: that of another site may name other tables."""
        return next((one for one in self.sorted_groups if one == projection), projection)

    @property
    def time_column(self) -> Measure | None:
        """The time column with its type; None if there is none, or until the columns are known."""
        return self._measure(self.time) if self.time and self.columns else None

    def measure(self, name: str | None = None) -> Measure:
        """The measure with this name; the first one if None.

        Raises InputError for an unknown name, EmptyWindow until the columns are known.
        """
        if name is not None and not (isinstance(name, str) and name in self.measure_names):
            raise InputError(
                f"no measure {shortened(name)} here. Expected one of: {', '.join(self.measure_names)}."
                f"{self.told_renamed([name])}"
            )
        if not self.columns:
            raise EmptyWindow("the warehouse has no rows yet: its first batch will fix the columns' types.")
        wanted = name or self.measure_names[0]
        return next(measure for measure in self.measures if measure.name == wanted)

    def properties(self) -> dict[str, str]:
        """The table properties that hold the options."""
        values = {"format": str(FORMAT)}
        for option in OPTIONS.values():
            if (stored := self.stored(option)) is not None or not option.is_later:
                values[option.property] = json.dumps(stored)
        for name in BESIDE:
            if (value := getattr(self, name)) is not None and value not in ({}, ""):
                values[name] = json.dumps(value)
        return {PROPERTY_PREFIX + name: value for name, value in values.items()}

    def stored(self, option: Option) -> Any:
        """The stored form of the option."""
        return KINDS[option.kind].as_stored(getattr(self, option.field))

    @classmethod
    def from_properties(cls, uri: str, properties: Mapping[str, Any], columns: Mapping[str, str]) -> Options:
        """The options from the properties of `events`, and its columns, stored name to Delta's type.

        Raises NotAWarehouse for properties that are missing, damaged, or of a newer version. `uri` is for
        the error texts.
        """
        stored = {
            name.removeprefix(PROPERTY_PREFIX): value
            for name, value in properties.items()
            if name.startswith(PROPERTY_PREFIX)
        }
        if "format" not in stored:
            raise NotAWarehouse(
                f"{uri} is not a tidemark warehouse: its events table has no tidemark properties."
            )
        if stored["format"] != str(FORMAT):
            raise NotAWarehouse(
                f"{uri} is of format {stored['format']}, this version reads {FORMAT}. Use a newer tidemark."
            )

        unknown = features.describe_unknown(read_beside(uri, stored, ["features"]).get("features", {}))
        if unknown is not None:
            raise NotAWarehouse(
                f"{uri} has {unknown}. This version does not know it: use a newer tidemark. "
                "Nothing was changed."
            )
        values = {name: read_option(uri, stored, option) for name, option in OPTIONS.items()}
        if (values["time"] is None) != (values["tick"] is None):
            reason = f"the time column is {values['time']!r}, expected both or neither"
            raise damaged_property(uri, "tick_us", stored["tick_us"], reason)
        options = cls(**fields_of(values), **read_beside(uri, stored, BESIDE))
        if bool(options.private) != bool(options.fingerprint):
            reason = "private columns and the fingerprint of their secret go together"
            raise damaged_property(uri, "fingerprint", stored.get("fingerprint"), reason)
        user = {name: kind for name, kind in columns.items() if name not in SYSTEM_COLUMNS}
        if options.rotation and {*options.rotation["columns"].values()} <= {*user}:
            return options.rotated(user)
        return options.with_types(user)

    def with_feature(self, name: str) -> Options:
        """The options with this feature, too."""
        return replace(self, features={**self.features, name: features.KNOWN[name]})

    def with_types(self, stored: Mapping[str, str]) -> Options:
        """The options with their columns, from stored names to Delta's types."""
        own = self.with_token_types(self.names.of_types(stored))
        return replace(self, columns=tuple(own.items()))

    def rotated(self, stored: Mapping[str, str]) -> Options:
        """The options with the newer secret, of a table that has the columns of its tokens.

        Projections whose rows have tokens get other tables, which are built anew.
        """
        to, before = self.rotation, self.earlier_names
        names = {name: [new, *before.get(name, [name])] for name, new in to["columns"].items()}
        found = replace(
            self, fingerprint=to["fingerprint"], earlier_names={**before, **names}, rotation={}
        ).with_types(stored)
        earlier = replace(found, earlier_names=before)
        own, others = ([one.runs_table for one in options.projections] for options in (found, earlier))
        gone = [name for name in others if name not in own]
        return replace(
            found,
            built_from={
                **{name: step for name, step in self.built_from.items() if name not in gone},
                **dict.fromkeys((name for name in own if name not in others), to["step"]),
            },
            dropped={**self.dropped, **dict.fromkeys(gone, to["at"])},
        )

    def with_token_types(self, columns: Mapping[str, str]) -> dict[str, str]:
        """The columns, name to type, with the type of tokens for those that are private and binary."""
        kind = token_type(self.fingerprint) if self.private else ""
        return {
            name: kind if name in self.private and given == "binary" else given
            for name, given in columns.items()
        }

    @property
    def given_columns(self) -> dict[str, str]:
        """The columns as text has them, name to type: the private ones as strings."""
        return {name: "string" if name in self.private else kind for name, kind in self.columns}

    def check_stored(self, uri: str) -> None:
        """NotAWarehouse if a named column is missing in `events` or has a wrong type."""
        if not self.columns:
            return
        columns = dict(self.columns)
        for role, names in self._roles().items():
            try:
                allowed_columns.check_role(role, names, columns)
            except InputError as error:
                raise damaged_property(
                    uri, role, self.properties()[PROPERTY_PREFIX + role], str(error)
                ) from error

    def check_retention(self) -> None:
        """InputError for a retention without a column of times."""
        if self.retention_us is not None and self.time is None:
            raise InputError(
                "retention was given, and there is no time column, so rows have no age. Leave it out, or "
                "create the warehouse with a time column."
            )

    def check_columns(self, columns: Mapping[str, str]) -> None:
        """InputError if a measure, a key or the time is missing in the columns or has a wrong type."""
        allowed_columns.check_names(columns)
        for role, names in self._roles().items():
            allowed_columns.check_role(role, names, columns)

    def _roles(self) -> dict[str, list[str]]:
        """The columns that have each role; a role is the name of an option."""
        return {
            option.name: KINDS[option.kind].columns(getattr(self, option.field))
            for option in OPTIONS.values()
        }

    def check_same(self, given: Mapping[str, Any]) -> None:
        """OptionsMismatch if a given option differs from the stored one; None means not given."""
        for name, value in given.items():
            stored = self.stored(OPTIONS[name])
            # What was added later is no difference: the job that created the warehouse goes on.
            if value is not None and OPTIONS[name].kind in {"keys", "indexes"}:
                is_same = all(one in stored for one in value)
            elif value is not None and OPTIONS[name].kind == "names":
                tables_of = {one: runs_table(self.names.stored(one)) for one in stored}
                is_same = value == [
                    one for one in stored if one in value or tables_of[one] not in self.built_from
                ]
            else:
                is_same = value is None or value == stored
            if not is_same:
                change = (
                    "change it by `tidemark alter`"
                    if OPTIONS[name].is_altered
                    else "create another warehouse"
                )
                raise OptionsMismatch(
                    f"{name} was given as {shortened(value)}, the warehouse has {stored!r}. Leave it out, or "
                    f"{change}."
                )


def read_options(store: Store, events: DeltaTable | None = None) -> Options:
    """The options of the warehouse; `events` is its opened table, None opens the newest version."""
    table = events or tables.open_table(store, EVENTS)
    made = facts_of(table).made
    options: Options = made.get("options") or made.setdefault("options", _options_of(store, table))
    return replace(options, tuning=store.tuning)


def _options_of(store: Store, events: DeltaTable) -> Options:
    columns = column_types(events.schema().fields)
    options = Options.from_properties(store.uri, events.metadata().configuration, columns)
    options.check_stored(store.uri)
    return options
