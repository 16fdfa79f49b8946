"""How often SS and B are wrong, over 2,000 independent items: an item's digest seeds its hashes."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.sketches.persistence_world import as_dict, regular
from tidemark.sketches.persistence import sampled_items
from tidemark.sketches.persistence.pair_hashes import hash_salt, pair_hashes
from tidemark.sketches.persistence.plans import Plan, fewest_items_plan, one_instance_plan, thesis_plan
from tidemark.sketches.persistence.promise import Promise
from tidemark.sketches.persistence.sampled_items import SampledItems

ITEMS = 2000
PLANS: dict[str, Callable[[Promise], Plan]] = {
    "thesis": thesis_plan,
    "one instance": one_instance_plan,
    "fewest items": fewest_items_plan,
}


def reports(plan: Plan, slots: range, items: int = ITEMS) -> dict[int, float]:
    """What is reported of items that are each in all of `slots`, in a window that ends with them."""
    tracker = SampledItems(plan)
    regular(items, slots).feed([tracker], 1)
    found = as_dict(tracker.persistent(slots.stop - 1))
    tracker.check_invariants()
    return found


def tolerance(probability: float) -> float:
    return 4 * math.sqrt(probability * (1 - probability) / ITEMS) + 1 / ITEMS


@pytest.mark.parametrize("sliding", [True, False])
@pytest.mark.parametrize("plan_of", PLANS.values(), ids=PLANS)
def test_with_exact_counts_items_are_missed_as_often_as_computed(
    plan_of: Callable[[Promise], Plan], *, sliding: bool
) -> None:
    """Items of exactly alpha * n slots are missed if M > p - needed in every instance."""
    n, p = 160, 60
    promise = Promise(sites=1, slots=n, alpha=p / n, eps=0.3, delta=0.2, sliding=sliding, seed=1)
    plan = plan_of(promise).with_exact_sets()
    # Every second slot; a window that slides has seen others before, which have left.
    first = 400 if sliding else 0
    found = reports(plan, range(first + n - 2 * p, first + n, 2))
    late = np.array([n - 2 * p + 20])
    most_missed = math.floor(p - plan.needed(late)[0])
    assert 1 / plan.rate - 1 < late[0]
    missed = (1 - plan.rate) ** ((most_missed + 1) * plan.instances)
    assert 0.002 < missed <= promise.delta
    assert abs(1 - len(found) / ITEMS - missed) < tolerance(missed)
    print(f"missed {1 - len(found) / ITEMS:.4f}, computed {missed:.4f}, delta {promise.delta}")


@pytest.mark.parametrize("plan_of", PLANS.values(), ids=PLANS)
def test_with_exact_counts_no_item_is_reported_by_mistake(plan_of: Callable[[Promise], Plan]) -> None:
    promise = Promise(sites=1, slots=160, alpha=0.5, eps=0.25, delta=0.2, sliding=True, seed=2)
    assert not reports(plan_of(promise).with_exact_sets(), range(100, 100 + 39), 500)


@pytest.mark.slow
def test_with_samples_of_slots_the_promise_holds_and_b_misses_no_more() -> None:
    """Items of alpha * n slots, and of just less than (alpha - eps) * n: more than a sample keeps, both."""
    promise = Promise(sites=1, slots=300, alpha=0.9, eps=0.6, delta=0.5, sliding=False, seed=3)
    plan = one_instance_plan(promise)
    persistent, not_persistent = range(30, 300), range(211, 300)
    assert plan.sample_size < len(not_persistent)
    ss, b = reports(plan, persistent), reports(plan.with_exact_sets(), persistent)
    assert ITEMS > len(b) >= len(ss) >= ITEMS * (1 - promise.delta - tolerance(promise.delta))
    by_mistake = reports(plan, not_persistent)
    assert len(by_mistake) <= ITEMS * (plan.delta2 + tolerance(plan.delta2))
    print(f"missed: SS {ITEMS - len(ss)}, B {ITEMS - len(b)}; reported by mistake: SS {len(by_mistake)}")


def plain_plan(sample_size: int) -> Plan:
    """One instance of the thesis with so low a limit that all items of the tests below are reported."""
    promise = Promise(sites=1, slots=400, alpha=0.1, eps=0.09, delta=0.1, sliding=False, seed=4)
    return replace(thesis_plan(promise), instances=1, rate=0.15, sample_size=sample_size)


def errors(found: dict[int, float], true: dict[int, float]) -> NDArray[np.float64]:
    assert len(found) == len(true) == ITEMS
    return np.array([found[digest] - true[digest] for digest in true])


def is_unbiased(some: NDArray[np.float64]) -> bool:
    return bool(abs(some.mean()) < 4 * some.std() / math.sqrt(len(some)))


def test_the_estimate_has_no_bias_and_the_printed_one_is_a_slot_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slots = range(200, 400, 2)
    true = dict.fromkeys(range(ITEMS), 100.0)
    assert is_unbiased(errors(reports(plain_plan(401), slots), true))
    monkeypatch.setattr(Plan, "missed", lambda self, late: np.minimum(1 / self.rate, late))
    printed = errors(reports(plain_plan(401), slots), true)
    assert not is_unbiased(printed)
    assert is_unbiased(printed - 1)


@pytest.mark.slow
def test_counts_have_no_bias_unless_one_hash_decides_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pair that began the tracking has a small hash: with the same hash it is always in the sample."""
    slots = range(310, 400)
    exact = reports(plain_plan(401), slots)
    assert is_unbiased(errors(reports(plain_plan(25), slots), exact))
    monkeypatch.setattr(
        sampled_items, "hash_salt", lambda seed, instance, _: hash_salt(seed, instance, "tracking")
    )
    assert not is_unbiased(errors(reports(plain_plan(25), slots), exact))


def test_a_slot_modulo_n_would_be_sampled_always_or_never() -> None:
    """h(d, t) of slots 1 to n alone, as algorithm 4 has it: items of period n are missed in every window."""
    n, present, windows, rate = 100, 30, 40, 0.02
    digests, salt = np.arange(ITEMS, dtype=np.uint64)[:, None, None], hash_salt(1, 0, "tracking")
    slots = np.arange(windows)[:, None] * n + np.arange(present)
    right, printed = (np.any(pair_hashes(digests, at, salt) < rate, axis=2) for at in (slots, slots % n))
    missed = (1 - rate) ** present
    for found in (right, printed):
        assert abs(1 - found[:, 0].mean() - missed) < tolerance(missed)
    assert abs(np.all(~printed, axis=1).mean() - missed) < tolerance(missed)
    assert np.any(right, axis=1).all()
