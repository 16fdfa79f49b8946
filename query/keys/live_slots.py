"""In which slots keys are present on the live side, from the ledger, without a row of `events`.

Each ledger row has one tick. For a key it says one of three things:

    present   its listing has at least one row of the key, or its sample has the key
    absent    its counters, or the floor of its listing, prove that the key has no row; or the key's hash is
              below the threshold of the sample, and the sample does not have it
    maybe     anything else

A sample that has all keys of its ledger row decides for every key. Where the window cuts the tick, the first
and last times of the sampled keys decide: present if one of the two lies in the window; maybe if the window
is between them and the key has further rows; else absent. Other keys are maybe there, unless the
sliding-window counters prove that they have no row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark.query.keys.key_samples import entries_within, name_hashes
from tidemark.query.keys.key_windows import PartialTick
from tidemark.query.keys.live_keys import LivePart, LiveSide
from tidemark.query.keys.slots import Slots
from tidemark.sketches.sampling import ALL, KeySample
from tidemark.sketches.sampling.key_sample import Hashes
from tidemark.warehouse.columns.codes import expand_ranges, places_among
from tidemark.warehouse.columns.keys import Names
from tidemark.warehouse.ledger.key_summaries import digests

ABSENT, MAYBE, PRESENT = 0, 1, 2
States = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class LiveSlots:
    """The ledger rows of a window.

    undecided: the parts of `side` whose sample does not have all keys, each with its sample.
    hashes, places, known: the keys of all other parts, by hash, ascending: the slot and the state of each.
    """

    side: LiveSide
    undecided: Mapping[int, KeySample]
    hashes: Hashes
    places: NDArray[np.int64]
    known: States
    partial_ticks: Sequence[PartialTick]
    slots: Slots

    @classmethod
    def of(
        cls,
        side: LiveSide,
        samples: Sequence[KeySample],
        partial_ticks: Sequence[PartialTick],
        slots: Slots,
    ) -> LiveSlots:
        """The ledger rows with the samples of their keys."""
        undecided: dict[int, KeySample] = {}
        hashes, places, known = [np.empty(0, np.uint64)], [np.empty(0, np.int64)], [np.empty(0, np.uint8)]
        for number, (part, sample) in enumerate(zip(side.parts, samples, strict=True)):
            if not sample.has_all or (not part.whole and sample.times is None):
                undecided[number] = sample
                continue
            states = np.full(sample.keys, PRESENT, np.uint8)
            if not part.whole:
                states = _states_of_entries(sample, part, partial_ticks)
            hashes.append(sample.hashes)
            places.append(np.full(sample.keys, slots.of(np.array([part.live.tick]))[0]))
            known.append(states)
        joined = np.concatenate(hashes)
        order = np.argsort(joined, kind="stable")
        return cls(
            side,
            undecided,
            joined[order],
            np.concatenate(places)[order],
            np.concatenate(known)[order],
            partial_ticks,
            slots,
        )

    @property
    def ticks(self) -> NDArray[np.int64]:
        """The ticks of the ledger rows, ascending."""
        return np.unique(np.array([part.live.tick for part in self.side.parts], np.int64))

    def most_slots(self, names: Names) -> tuple[NDArray[np.int64], int]:
        """The most slots of each name, shape (names,), and of any key that is not among the names."""
        ticks = np.array([self.side.parts[number].live.tick for number in self.undecided], np.int64)
        undecided = len(np.unique(self.slots.of(ticks)))
        hashes = name_hashes(names)
        pairs = np.flatnonzero(self.known != ABSENT)
        pairs = pairs[np.lexsort([self.places[pairs], self.hashes[pairs]])]
        keys, places = self.hashes[pairs], self.places[pairs]
        new = np.ones(len(pairs), bool)  # a key may have the same slot in several ledger rows
        new[1:] = (keys[1:] != keys[:-1]) | (places[1:] != places[:-1])
        unique, counts = np.unique(keys[new], return_counts=True)
        found = places_among(unique, hashes)
        most = np.append(counts, 0)[found] + undecided
        others = np.delete(counts, found[found >= 0])
        return most.astype(np.int64), int(others.max(initial=0)) + undecided

    def fill(self, states: States, columns: NDArray[np.int64], names: Names) -> None:
        """Raises states (names, columns) to those of the ledger; `columns` are slots, which ascend."""
        hashes = name_hashes(names)
        first, last = self.hashes.searchsorted(hashes), self.hashes.searchsorted(hashes, "right")
        index, entry = expand_ranges(first, last)
        cells = index, columns.searchsorted(self.places[entry])
        np.maximum.at(states, cells, self.known[entry])
        if not self.undecided:
            return
        least, most = self.side.by_part(names, digests(names), np.array([*self.undecided], np.int64))
        for i, (number, sample) in enumerate(self.undecided.items()):
            part = self.side.parts[number]
            found = np.where(least[i] > 0, PRESENT, np.where(most[i] > 0, MAYBE, ABSENT))
            self._apply_sample(found, part, sample, hashes)
            column = int(columns.searchsorted(self.slots.of(np.array([part.live.tick]))[0]))
            np.maximum(states[:, column], found.astype(np.uint8), out=states[:, column])

    def _apply_sample(
        self, found: NDArray[np.int64], part: LivePart, sample: KeySample, hashes: Hashes
    ) -> None:
        """Sets the states of the keys that are below the sample's threshold."""
        if part.whole:
            decided = _below(hashes, sample.threshold)
            found[decided] = np.where(places_among(sample.hashes, hashes[decided]) >= 0, PRESENT, ABSENT)
            return
        if sample.times is None:
            return
        of_entries = _states_of_entries(sample, part, self.partial_ticks)
        decided = _below(hashes, sample.detail)
        places = places_among(sample.entry_hashes, hashes[decided])
        found[decided] = np.append(of_entries, np.uint8(ABSENT))[places]


def _states_of_entries(sample: KeySample, part: LivePart, partial_ticks: Sequence[PartialTick]) -> States:
    """The states of the sampled keys of a ledger row whose tick is cut; such a row has one entry a key."""
    partial = next(cut for cut in partial_ticks if cut.tick == part.live.tick)
    times = sample.times if sample.times is not None else np.empty((0, 2), np.int64)
    inside, between = entries_within(sample, times, partial)
    return np.where(inside, PRESENT, np.where(between, MAYBE, ABSENT)).astype(np.uint8)


def _below(hashes: Hashes, threshold: int) -> NDArray[np.bool_]:
    return np.ones(len(hashes), bool) if threshold >= ALL else hashes < np.uint64(threshold)
