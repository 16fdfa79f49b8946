"""A table of keys and slots, from all sources: in which slots of a window each key is present.

Each cell of the table is ABSENT, MAYBE or PRESENT (live_slots.py). History is exact: rows that no listing has
are looked up. It is MAYBE only where the window cuts a tick, since history does not know the times in a tick.
So

    slots that are PRESENT  <=  slots of the key  <=  slots that are PRESENT or MAYBE

A slot is present if any of its ticks in any run or batch is: cells of several sources are joined by their
maximum, and never added up.

Cost: memory for names x slots with data; blocks are read for names that some run does not list as a whole,
one or two blocks a name and run, and only for names that may still reach the wanted number of slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tidemark.query.keys.key_blocks import KeyHistory, rows_of_names
from tidemark.query.keys.key_question import KeyQuestion
from tidemark.query.keys.listed_slots import Source, possible_names
from tidemark.query.keys.live_slots import ABSENT, MAYBE, PRESENT, LiveSlots, States
from tidemark.query.keys.slots import Slots
from tidemark.warehouse.columns.codes import Ints
from tidemark.warehouse.columns.keys import Names, find_names, no_names, take_names
from tidemark.warehouse.projections.key_rows import KeyRows, count_of_each, sum_counts

UNLIMITED = 2**62  # more rows than any key has


@dataclass(frozen=True, slots=True, eq=False)
class Presence:
    """The presence of names in the slots of a window that have data.

    names: ascending, shape (k,). columns: the slots, ascending, shape (c,). states: shape (k, c).
    rows_least, rows_most: certain bounds of the rows of each name in the window.
    """

    names: Names
    columns: Ints
    states: States
    rows_least: Ints
    rows_most: Ints

    @property
    def least(self) -> Ints:
        """The slots in which each name certainly has rows."""
        return np.asarray((self.states == PRESENT).sum(axis=1), np.int64)

    @property
    def most(self) -> Ints:
        """The most slots in which each name may have rows."""
        return np.asarray((self.states != ABSENT).sum(axis=1), np.int64)

    def at(self, kept: NDArray[np.intp] | Ints) -> Presence:
        """The names with these indices."""
        return Presence(
            take_names(self.names, kept),
            self.columns,
            self.states[kept],
            self.rows_least[kept],
            self.rows_most[kept],
        )


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """The known facts about the window's keys: sources in memory, and the ledger for live rows not in these.

    history: the runs that have rows in the window. columns: the slots that have data, ascending.
    """

    question: KeyQuestion
    slots: Slots
    history: KeyHistory
    sources: Sequence[Source]
    live: LiveSlots | None
    columns: Ints

    @classmethod
    def of(cls, question: KeyQuestion, slots: Slots) -> Evidence:
        """The listings of the runs; and the ledger, or in mode exact the live rows."""
        history = question.history(question.window.overlapping)
        listings = [question.source.listing(question.view, share.marks) for share in history.shares]
        sources = [
            Source.of_run(number, share, listing, history.window, slots)
            for number, (share, listing) in enumerate(zip(history.shares, listings, strict=True))
        ]
        return cls._of(question, slots, history, sources)

    @classmethod
    def of_names(cls, question: KeyQuestion, slots: Slots, names: Names) -> Evidence:
        """As `of`, to be asked about these names alone: they are looked up while runs have removed rows."""
        history = question.history(question.window.overlapping)
        if history.kept is None:
            return cls.of(question, slots)
        return cls._of(question, slots, history, [Source.read(_rows_left(history, names), timed=False)])

    @classmethod
    def _of(cls, question: KeyQuestion, slots: Slots, history: KeyHistory, sources: list[Source]) -> Evidence:
        live = None
        if question.mode == "exact":
            sources.append(Source.read(question.all_live_rows(), timed=True))
        else:
            side = question.live
            samples = question.source.live_samples([part.live for part in side.parts])
            live = LiveSlots.of(side, samples, question.window.partial_ticks, slots)
        ticks = [share.marks.totals.ticks for share in history.shares]
        ticks += [source.rows.ticks for source in sources if source.share is None]
        ticks += [] if live is None else [live.ticks]
        joined = np.concatenate([np.empty(0, np.int64), *ticks])
        joined = joined[history.window.holds(joined)]
        columns = np.unique(slots.of(joined))
        return cls(question, slots, history, sources, live, columns)

    def candidates(self, least: int) -> tuple[Names, int]:
        """The listed names that may be in `least` slots, ascending; and the most slots of any other key."""
        listed = no_names(self.question.view.key) if self.live is None else self.live.side.names
        names, most = possible_names(self.sources, listed, self.history.window)
        unlisted = sum(source.slack for source in self.sources)
        if self.live is not None:
            live_most, live_unlisted = self.live.most_slots(names)
            most, unlisted = most + live_most, unlisted + live_unlisted
        return take_names(names, np.flatnonzero(most >= least)), unlisted

    def presence(self, names: Names, least: int = 0, most_rows: int = UNLIMITED) -> Presence:
        """The presence of the names that may have `least` slots and at most `most_rows` rows.

        names: ascending.
        """
        table, slack = self._from_memory(names, count_rows=most_rows < UNLIMITED)
        possible = np.flatnonzero((table.most + slack.sum(axis=0) >= least) & (table.rows_least <= most_rows))
        table, slack = table.at(possible), slack[:, possible]
        wanted = {
            source.share: np.flatnonzero(open_slots)
            for source, open_slots in zip(self.sources, slack, strict=True)
            if source.share is not None and open_slots.any()
        }
        if wanted:
            self._add(table, *rows_of_names(self.history, table.names, wanted))
        return table.at(np.flatnonzero((table.most >= least) & (table.rows_least <= most_rows)))

    def _from_memory(self, names: Names, *, count_rows: bool) -> tuple[Presence, Ints]:
        """The presence of names as far as memory has it, and the further slots in each source.

        count_rows: whether live rows are counted.

        The second array has the shape (sources, names). Rows of a source that has further rows of the name do
        not count yet.
        """
        k = len(names)
        table = Presence(
            names,
            self.columns,
            np.zeros((k, len(self.columns)), np.uint8),
            np.zeros(k, np.int64),
            np.zeros(k, np.int64),
        )
        slack = np.zeros((len(self.sources), k), np.int64)
        for number, source in enumerate(self.sources):
            index, ticks, counts, whole = source.rows_of(names, self.history.window)
            slack[number] = np.where(whole, 0, source.slack)
            self._add(table, index, ticks, np.where(whole[index], counts, 0), timed=source.timed)
        if self.live is not None:
            self.live.fill(table.states, self.columns, names)
            if count_rows:
                counted = self.live.side.count(names)
                np.add(table.rows_least, counted.least, out=table.rows_least)
                np.add(table.rows_most, counted.most, out=table.rows_most)
        return table, slack

    def _add(self, table: Presence, index: Ints, ticks: Ints, counts: Ints, *, timed: bool = False) -> None:
        """Adds rows: the index of the name, the tick and the count of each."""
        column = self.columns.searchsorted(self.slots.of(ticks))
        cut = np.isin(
            ticks, [] if timed else [partial.tick for partial in self.question.window.partial_ticks]
        )
        maybe = index[cut], column[cut]
        table.states[maybe] = np.maximum(table.states[maybe], MAYBE)
        table.states[index[~cut], column[~cut]] = PRESENT
        np.add.at(table.rows_most, index, counts)
        np.add.at(table.rows_least, index, np.where(cut, 0, counts))


def _rows_left(history: KeyHistory, names: Names) -> KeyRows:
    """The rows of names in the window, without removed rows."""
    every = dict.fromkeys(range(len(history.shares)), np.arange(len(names)))
    index, ticks, counts = rows_of_names(history, names, every)
    left = [count_of_each(names, index, ticks, counts)]
    if history.kept is not None:
        asked = find_names(names, history.kept.names)[history.kept.codes] >= 0
        gone = history.kept.where(asked)
        left.append(replace(gone, counts=-gone.counts))
    rows = sum_counts(left)
    return rows.where(rows.counts != 0)
