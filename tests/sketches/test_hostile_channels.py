"""Every algorithm over sites on a channel that loses, repeats, reorders, cuts and forges; and payloads.

Each exercise holds all answers against the truth, so it fails where a carrier delivers what it must not.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.sketches import test_dcm, test_gather, test_sites, test_skyline, test_topk
from tests.sketches.monitoring_world import all_queries, stream, watch
from tests.sketches.test_monitoring import monitoring_of
from tests.sketches.test_sites import (
    HOSTILE,
    PROMISE,
    delivered_as_it_comes,
    opened_without_the_hash,
)
from tidemark.sketches import CorruptSketch, SketchError
from tidemark.sketches.dcm import DCMCoordinator
from tidemark.sketches.errors import Undelivered
from tidemark.sketches.geometric import messages
from tidemark.sketches.persistence.messages import LISTS, QUESTION, TRACKED
from tidemark.sketches.persistence.plans import thesis_plan
from tidemark.sketches.persistence.sampled_items import SampledItems
from tidemark.sketches.sites import endpoint as endpoints
from tidemark.sketches.sites import network
from tidemark.sketches.sites.channel import Channel, Faults
from tidemark.sketches.sites.endpoint import Endpoint
from tidemark.sketches.sites.envelope import COORDINATOR


def monitored(faults: Faults) -> None:
    watch(monitoring_of(all_queries(0.3), 3, channel=Channel(faults, 5)), stream("drift", 40, 3))


def persistent(faults: Faults) -> None:
    del faults  # it is HOSTILE
    for kind in ("SS", "A"):
        test_sites.test_persistent_items_are_the_same_through_a_hostile_channel(kind, 1)


ALGORITHMS: dict[str, Callable[[Faults], object]] = {
    "persistent items": persistent,
    "geometric monitoring": monitored,
    "top k": test_topk.test_drifting_streams_of_eight_sites,
    "DCM": lambda faults: test_dcm.exercise("PF", faults),
    "skyline": lambda faults: test_skyline.exercise(4, 8, 2, faults, steps=40),
    "one payload of each site": lambda _: test_gather.exercise(),
}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_answers_are_true_on_a_hostile_channel(algorithm: str) -> None:
    ALGORITHMS[algorithm](HOSTILE)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_without_hashes_that_shows(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "RESTLESS", 200)
    monkeypatch.setattr(endpoints, "open_envelope", opened_without_the_hash)
    with pytest.raises((AssertionError, SketchError, ValueError, IndexError, OverflowError, MemoryError)):
        ALGORITHMS[algorithm](HOSTILE)


@pytest.mark.parametrize("algorithm", ["geometric monitoring", "top k"])
def test_without_rounds_that_shows(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages of the others may be taken twice: they have numbers, or say how things are."""
    monkeypatch.setattr(network, "RESTLESS", 200)
    monkeypatch.setattr(Endpoint, "_take", delivered_as_it_comes)
    with pytest.raises((AssertionError, SketchError)):
        ALGORITHMS[algorithm](HOSTILE)


@pytest.mark.parametrize("algorithm", ["geometric monitoring", "top k", "DCM", "skyline"])
def test_a_channel_that_lets_nothing_through_is_an_error(algorithm: str) -> None:
    with pytest.raises(Undelivered, match="no acknowledgement"):
        ALGORITHMS[algorithm](Faults(dropped=1.0))


def test_payloads_of_other_sizes_and_conditions_that_are_not_there_are_refused() -> None:
    """The channel cannot make them; a site of another layout or release can."""
    monitoring = monitoring_of(all_queries(), 2)
    ends = monitoring._network._machines
    for kind, payload in (
        (messages.VIOLATED, b""),
        (messages.VIOLATED, b"\0" * 13),
        (messages.VALUE, b"\xff" * 4 + b"\0" * 8),
        (messages.VECTOR, b"\0" * 11),
        (messages.VECTOR, b"\0" * 15),
    ):
        with pytest.raises(CorruptSketch):
            ends[COORDINATOR].receive(0, kind, payload)
    for kind, payload in (
        (messages.ASK, b"\0" * 3),
        (messages.ASK, b"\xff" * 4),
        (messages.SHIFT, b"\xff" * 4 + b"\0" * 9),
        (messages.SHIFT, b""),
        (messages.COLLECT, b"\0"),
        (messages.RESTART, b"\0" * 5),
    ):
        with pytest.raises(CorruptSketch):
            ends[0].receive(COORDINATOR, kind, payload)
    tracker = SampledItems(thesis_plan(PROMISE))
    for place, kind, payload in (
        (COORDINATOR, TRACKED, b"\0" * 15),
        (COORDINATOR, LISTS, b"\1"),
        (0, TRACKED, b""),
        (0, QUESTION, b"\0" * 9),
    ):
        with pytest.raises(CorruptSketch):
            tracker._networks[0]._machines[place].receive(1, kind, payload)
    for payload in (b"", b"\0" * 8, np.arange(40, dtype=np.uint8).tobytes()):
        with pytest.raises(CorruptSketch):
            DCMCoordinator(test_dcm.sketch(), 2, 0.1).receive(0, 1, payload)
