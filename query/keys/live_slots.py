"""In which slots keys are present on the live side, from the ledger, without a row of `events`.

Each ledger row has one tick. For a key it says one of three things:

    present   its listing has at least one row of the key, or its sample has the key
    absent    its counters, or the floor of its listing, leave no row for the key; or the key's hash is below
              the threshold of the sample, and the sample does not have it
    maybe     anything else

A sample that has all keys of its ledger row decides for every key. Where the window cuts the tick, the first
and last times of the sampled keys decide: present if one of the two lies in the window; maybe if the window
is between them and the key has further rows; else absent. Keys that are not sampled are maybe there, unless
the sliding-window counters leave no row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark.query.keys.key_samples import entries_within
from tidemark.query.keys.key_windows import PartialTick
from tidemark.query.keys.live_keys import LivePart, LiveSide
from tidemark.query.keys.slots import Slots
from tidemark.sketches.hashing.row_hashes import splitmix
from tidemark.sketches.sampling import ALL, KeySample
from tidemark.sketches.sampling.key_sample import Hashes
from tidemark.warehouse.columns.keys import Names
from tidemark.warehouse.integrity.digests import name_words

ABSENT, MAYBE, PRESENT = 0, 1, 2
States = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class LiveSlots:
    """The ledger rows of a window, each with its sample; None for those of an earlier version."""

    side: LiveSide
    samples: Sequence[KeySample | None]
    partial_ticks: Sequence[PartialTick]

    @property
    def ticks(self) -> NDArray[np.int64]:
        """The ticks of the ledger rows, ascending."""
        return np.unique(np.array([part.live.tick for part in self.side.parts], np.int64))

    def fill(self, states: States, columns: NDArray[np.int64], names: Names, slots: Slots) -> None:
        """Raises states (names, columns) to what the ledger says; `columns` are slots, which ascend."""
        least, most = self.side.by_part(names)
        hashes = splitmix(name_words(names)) if len(names) else np.empty(0, np.uint64)
        for number, (part, sample) in enumerate(zip(self.side.parts, self.samples, strict=True)):
            found = np.where(least[number] > 0, PRESENT, np.where(most[number] > 0, MAYBE, ABSENT))
            if sample is not None:
                self._apply_sample(found, part, sample, hashes)
            column = int(columns.searchsorted(slots.of(np.array([part.live.tick]))[0]))
            np.maximum(states[:, column], found.astype(np.uint8), out=states[:, column])

    def _apply_sample(
        self, found: NDArray[np.int64], part: LivePart, sample: KeySample, hashes: Hashes
    ) -> None:
        """Sets the states of the keys that are below the sample's threshold."""
        if part.whole:
            decided = _below(hashes, sample.threshold)
            found[decided] = np.where(_places(sample.hashes, hashes[decided]) >= 0, PRESENT, ABSENT)
            return
        partial = next(cut for cut in self.partial_ticks if cut.tick == part.live.tick)
        if sample.times is None:
            return
        inside, between = entries_within(sample, sample.times, partial)
        of_entries = np.where(inside, PRESENT, np.where(between, MAYBE, ABSENT))
        decided = _below(hashes, sample.detail)
        places = _places(sample.entry_hashes, hashes[decided])  # a ledger row has one tick: one entry a key
        found[decided] = np.where(places >= 0, np.append(of_entries, ABSENT)[places], ABSENT)


def _below(hashes: Hashes, threshold: int) -> NDArray[np.bool_]:
    return np.ones(len(hashes), bool) if threshold >= ALL else hashes < np.uint64(threshold)


def _places(known: Hashes, hashes: Hashes) -> NDArray[np.int64]:
    """The index of each hash among the known ones, which ascend; -1 for those that are not there."""
    if not len(known):
        return np.full(len(hashes), -1, np.int64)
    places = np.minimum(known.searchsorted(hashes), len(known) - 1)
    return np.where(known[places] == hashes, places, -1).astype(np.int64)
