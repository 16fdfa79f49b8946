import doctest
import math
import re
from collections.abc import Callable
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from tests.sketches.persistence_world import (
    Rows,
    SlotSets,
    as_dict,
    assert_exact,
    assert_planned,
    assert_promise,
    late_absolute,
    mixed_rows,
    regular,
)
from tidemark.sketches.persistence import all_items, sampled_items
from tidemark.sketches.persistence.all_items import AllItems
from tidemark.sketches.persistence.coordinator import Coordinator
from tidemark.sketches.persistence.pair_hashes import hash_salt, pair_hashes
from tidemark.sketches.persistence.plans import Plan, fewest_items_plan, one_instance_plan, thesis_plan
from tidemark.sketches.persistence.promise import PersistenceTracker, Promise
from tidemark.sketches.persistence.sampled_items import SampledItems
from tidemark.sketches.persistence.site import Site
from tidemark.sketches.persistence.slot_sample import Sampling
from tidemark.sketches.sites.envelope import COORDINATOR
from tidemark.sketches.sites.machine import Message

TRACKED_BYTES, QUESTION_BYTES, COUNT_BYTES = 16, 8, 8  # the table of messages.py; the first number of LISTS
PLANS: dict[str, Callable[[Promise], Plan]] = {
    "thesis": thesis_plan,
    "one instance": one_instance_plan,
    "B": lambda promise: thesis_plan(promise).with_exact_sets(),
    "B with the fewest items": fewest_items_plan,
}


def promised(
    slots: int = 60,
    alpha: float = 0.8,
    eps: float = 0.4,
    *,
    delta: float = 0.2,
    sites: int = 3,
    sliding: bool = True,
    seed: int = 0,
) -> Promise:
    return Promise(sites=sites, slots=slots, alpha=alpha, eps=eps, delta=delta, sliding=sliding, seed=seed)


def trackers(*some: PersistenceTracker) -> tuple[PersistenceTracker, ...]:
    """The algorithms by what they have in common."""
    return some


def small_samples(promise: Promise) -> Plan:
    """A plan with samples that are smaller than the windows of these tests, whatever it promises."""
    return replace(thesis_plan(promise), sample_size=7)


@pytest.mark.parametrize("sliding", [True, False])
@pytest.mark.parametrize("plan_of", [*PLANS.values(), small_samples], ids=[*PLANS, "small samples"])
def test_every_report_is_what_the_definition_says(
    plan_of: Callable[[Promise], Plan], *, sliding: bool
) -> None:
    promise = promised(slots=60 if sliding else 240, sliding=sliding)
    tracker, exact, truth = SampledItems(plan_of(promise)), AllItems(promise), SlotSets()
    for i, (slot, site, digests) in enumerate(mixed_rows(1, 60, 240).calls(promise.sites)):
        tracker.update(site, digests, slot)
        exact.update(site, digests, slot)
        truth.add(digests.tolist(), slot)
        if i % 97 == 0:
            assert_exact(exact, truth, slot)
            assert_planned(tracker, truth, slot)
    for now in (239, 250, 298, 299) if sliding else (239,):
        assert_exact(exact, truth, now)
        assert_planned(tracker, truth, now)
    if sliding:
        for gone in trackers(exact, tracker):
            assert len(gone.persistent(10**9)) == 0
            assert gone.nbytes == 0
            gone.check_invariants()


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 4)), max_size=60),
    st.booleans(),
    st.integers(0, 2**64 - 1),
)
def test_any_few_rows_are_reported_as_defined(
    rows: list[tuple[int, int, int]], sliding: bool, seed: int
) -> None:
    """Rows of (site, item, slots since the row before), with gaps of up to a window."""
    slots, alpha = (4, 0.75) if sliding else (300, 0.02)
    promise = promised(slots, alpha, alpha / 2, sliding=sliding, seed=seed)
    sampled = [SampledItems(replace(thesis_plan(promise), rate=0.4, sample_size=size)) for size in (2, 301)]
    exact, truth, slot = AllItems(promise), SlotSets(), 0
    for site, digest, step in rows:
        slot += step
        truth.add([digest], slot)
        for tracker in trackers(exact, *sampled):
            tracker.update(site, np.array([digest], np.uint64), slot)
        assert_exact(exact, truth, slot)
    for one in sampled:
        assert_planned(one, truth, slot)


@pytest.mark.parametrize("plan_of", [*PLANS.values(), small_samples], ids=[*PLANS, "small samples"])
def test_one_site_and_many_report_the_same(plan_of: Callable[[Promise], Plan]) -> None:
    reports = []
    for sites, seed in [(1, 0), (2, 1), (7, 2), (7, 3)]:
        tracker = SampledItems(plan_of(promised(sites=sites)))
        mixed_rows(2, 60, 150).feed([tracker], sites, seed)
        reports.append(as_dict(tracker.persistent()))
    assert reports[0]
    assert all(report == reports[0] for report in reports)


def test_messages_at_the_end_of_a_slot_give_the_same_report() -> None:
    """Several sites then begin to track an item on their own, in the same slot."""
    promise = promised(sites=4)
    plan = thesis_plan(promise)
    tracker = SampledItems(replace(plan, instances=1))
    salt = hash_salt(promise.seed, 0, "tracking")
    sampling = Sampling(plan.sample_size, promise.sliding, hash_salt(promise.seed, 0, "counting"))
    sites = [Site(plan.rate, salt, sampling, promise.slots) for _ in range(4)]
    coordinator = Coordinator(plan, sampling)
    undelivered: list[tuple[int, Message]] = []

    def deliver() -> None:
        for sender, message in undelivered:
            for passed_on in coordinator.receive(sender, message.kind, message.payload):
                sites[passed_on.to].receive(COORDINATOR, passed_on.kind, passed_on.payload)
        undelivered.clear()

    last, started_together = 0, 0
    for slot, number, digests in mixed_rows(3, 60, 200).calls(4):
        if slot > last:
            started_together += len(undelivered) - len({message for _, message in undelivered})
            deliver()
            start = promise.window_start(slot)
            undelivered += [(i, message) for i, site in enumerate(sites) for message in site.renew(start)]
            deliver()
            for site in sites:
                site.forget(start)
            coordinator.forget(start)
            last = slot
        undelivered += [(number, message) for message in sites[number].observe(digests, slot)]
        tracker.update(number, digests, slot)
    deliver()
    coordinator.answers.move(last)
    for asked in coordinator.answers.ask():
        for answer in sites[asked.to].receive(COORDINATOR, asked.kind, asked.payload):
            coordinator.receive(asked.to, answer.kind, answer.payload)
    report = coordinator.report()
    assert as_dict(report) == as_dict(tracker.persistent())
    assert all(site.told() == coordinator.told() for site in sites)
    assert started_together > 0


def test_an_item_that_moves_between_sites_is_persistent() -> None:
    """The thesis's example: at no site is it in more than a fifth of the slots."""
    promise = promised(slots=100, sites=5, alpha=0.9, eps=0.3, delta=1e-6)
    for tracker in trackers(AllItems(promise), SampledItems(one_instance_plan(promise))):
        for slot in range(150):
            tracker.update(slot % 5, np.array([7], np.uint64), slot)
        assert as_dict(tracker.persistent()).keys() == {7}


def test_the_same_slot_at_all_sites_counts_once() -> None:
    promise = promised(slots=100, sites=5, alpha=0.5, eps=0.2, delta=1e-6)
    for tracker in trackers(AllItems(promise), SampledItems(one_instance_plan(promise))):
        for slot in range(100):
            for site in range(5 if slot % 5 == 0 else 0):
                tracker.update(site, np.array([7, 7], np.uint64), slot)
        assert as_dict(tracker.persistent()) == {}


def test_messages_and_bytes_are_counted() -> None:
    """A fixed window: an item is told to three other sites and the coordinator; a question is two a site."""
    promise = promised(slots=200, sites=4, sliding=False)
    tracker, exact, truth = SampledItems(one_instance_plan(promise)), AllItems(promise), SlotSets()
    for slot, site, digests in mixed_rows(4, 60, 200).calls(4):
        tracker.update(site, digests, slot)
        exact.update(site, digests, slot)
        truth.add(digests.tolist(), slot)
    assert (tracker.messages_sent, tracker.bytes_sent) == (4 * tracker.tracked, 64 * tracker.tracked)
    assert exact.bytes_sent == 0
    before, held = tracker.bytes_sent, tracker.nbytes
    tracker.persistent()
    exact.persistent()
    assert tracker.messages_sent == 4 * tracker.tracked + 8
    # Items and slots of all sites go out; the slots told and sampled, and the coordinator's items, do not.
    asked = 4 * (QUESTION_BYTES + COUNT_BYTES)
    assert tracker.bytes_sent - before == asked + held - (4 * 16 + 24) * tracker.tracked
    assert (exact.messages_sent, exact.bytes_sent) == (8, asked + exact.nbytes)


def test_a_sampled_pair_is_told_at_most_once() -> None:
    promise = promised(slots=60, sites=3)
    plan = one_instance_plan(promise)
    tracker, truth = SampledItems(plan), SlotSets()
    for slot, site, digests in mixed_rows(5, 60, 600).calls(3):
        tracker.update(site, digests, slot)
        truth.add(digests.tolist(), slot)
    salt = hash_salt(promise.seed, 0, "tracking")
    sampled = sum(
        int((pair_hashes(np.array([d], np.uint64), np.array(sorted(t), np.int64), salt) < plan.rate).sum())
        for d, t in truth.slots.items()
    )
    # Three messages at most for each pair; far fewer, because most are not the newest when one leaves.
    assert 0 < tracker.messages_sent < sampled
    assert tracker.bytes_sent == TRACKED_BYTES * tracker.messages_sent


def test_messages_grow_with_the_sites() -> None:
    sent = []
    for sites in (2, 4, 8):
        tracker = SampledItems(one_instance_plan(promised(slots=200, sites=sites, sliding=False)))
        mixed_rows(4, 60, 200).feed([tracker], sites)
        sent.append(tracker.bytes_sent)
    assert sent[2] == 2 * sent[1] == 4 * sent[0]


@pytest.mark.slow
def test_with_many_slots_ss_is_smaller_than_b_and_b_than_a() -> None:
    """Four items in every slot of 8,000 and many in two: lists and bitmaps against samples of 76 slots."""
    promise = promised(slots=8000, alpha=0.9, eps=0.8, sites=1, sliding=False)
    plan = one_instance_plan(promise)
    assert plan.sample_size < 100
    often = np.tile(np.arange(4, dtype=np.uint64), 8000)
    seldom = np.repeat(np.arange(100, 5100, dtype=np.uint64), 2)
    slots = np.concatenate(
        [np.repeat(np.arange(8000), 4), np.random.default_rng(6).integers(0, 8000, 10_000)]
    )
    order = np.argsort(slots, kind="stable")
    ss, b, a = SampledItems(plan), SampledItems(plan.with_exact_sets()), AllItems(promise)
    Rows(np.concatenate([often, seldom])[order], slots[order]).feed([ss, b, a], 1)
    for tracker in trackers(ss, b, a):
        assert as_dict(tracker.persistent()).keys() == {0, 1, 2, 3}
    assert 1.4 * ss.nbytes < b.nbytes < a.nbytes / 20
    assert 1.4 * ss.bytes_sent < b.bytes_sent < a.bytes_sent / 20


def test_where_slots_are_few_ss_is_b() -> None:
    """Hours of a month: a sample that keeps eps2 would have more slots than the window."""
    plan = one_instance_plan(promised(slots=720, alpha=0.3, eps=0.05))
    assert plan.sample_size == 721
    assert plan == plan.with_exact_sets()
    promise = promised(slots=2**21, alpha=0.3, eps=0.05, delta=0.1)
    # A bitmap of n slots is smaller than a list of s unless n > 64 * s.
    assert 510_000 < 64 * thesis_plan(promise).sample_size < 520_000
    assert 130_000 < 64 * one_instance_plan(promise).sample_size < 140_000


def few_slots_rows(windows: int) -> Rows:
    """2,000 items, each in 5 slots of every 1,000."""
    rng = np.random.default_rng(7)
    chosen = np.argsort(rng.random((windows, 2000, 200)), axis=2)[:, :, :5] * 5 + rng.integers(
        0, 5, (windows, 2000, 5)
    )
    slots = (chosen + 1000 * np.arange(windows)[:, None, None]).ravel()
    digests = np.tile(np.repeat(np.arange(2000, dtype=np.uint64), 5), windows)
    order = np.argsort(slots, kind="stable")
    return Rows(digests[order], slots[order])


@pytest.mark.slow
def test_items_are_forgotten_and_without_that_all_are_tracked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Theorem 7 allows tau times the sum of all persistences of the window: 0.12 * 10,000 items."""
    promise = promised(slots=1000, alpha=0.3, eps=0.05, delta=math.exp(-2), sites=1)
    plan = replace(thesis_plan(promise), instances=1)
    assert plan.rate * 10_000 == pytest.approx(1200)
    rows = few_slots_rows(15)
    tracker = SampledItems(plan)
    rows.feed([tracker], 1)
    last = rows.slots[-10_000:] * 2000 + rows.digests[-10_000:].astype(np.int64)
    assert len(np.unique(last)) == 10_000
    expected, deviation = 2000 * (1 - 0.88**5), math.sqrt(2000 * 0.88**5 * (1 - 0.88**5))
    assert abs(tracker.tracked - expected) < 4 * deviation
    print(f"tracked {tracker.tracked}, {tracker.nbytes} bytes, {tracker.messages_sent} messages")
    monkeypatch.setattr(Site, "forget", lambda *_: None)
    monkeypatch.setattr(Coordinator, "forget", lambda *_: None)
    as_printed = SampledItems(plan)
    rows.feed([as_printed], 1)
    assert as_printed.tracked >= 1999
    print(f"printed: tracked {as_printed.tracked}")


def test_the_printed_rule_estimates_more_slots_than_the_window_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Algorithm 6 in a later window: 1 / tau is added, though no slot can be missed that was not there."""
    promise = promised(slots=100, alpha=0.5, eps=0.3, sites=1)
    most = []
    for _ in range(2):
        tracker = SampledItems(thesis_plan(promise))
        regular(200, range(1000, 1100)).feed([tracker], 1)
        most.append(max(as_dict(tracker.persistent()).values()))
        monkeypatch.setattr(Coordinator, "_late", late_absolute)
    assert most[0] <= 100 < most[1]


def test_without_n_the_limit_of_lemma_2_reports_every_tracked_item(monkeypatch: pytest.MonkeyPatch) -> None:
    """T = (1 - eps2) * (alpha + 1 - 1 / tau), as printed there, is below the estimate of any item."""
    promise = promised(slots=1000, alpha=0.3, eps=0.05, sites=1, sliding=False)
    plan = replace(thesis_plan(promise), instances=1)
    rows = regular(200, range(900, 905))
    for is_printed in (False, True):
        if is_printed:
            printed = (1 - plan.eps2) * (promise.alpha + 1 - 1 / plan.rate)
            monkeypatch.setattr(
                Plan, "needed", lambda self, late, limit=printed: limit - np.minimum(1 / self.rate, late)
            )
        tracker = SampledItems(plan)
        rows.feed([tracker], 1)
        assert tracker.tracked > 50
        assert len(tracker.persistent()) == (tracker.tracked if is_printed else 0)


def test_items_tracked_grow_with_the_instances_which_theorems_3_and_4_leave_out() -> None:
    """2,000 items of one slot: tau * P are tracked by each instance, not by all together."""
    promise = promised(slots=1000, alpha=0.3, eps=0.05, delta=0.001, sites=1)
    plan = thesis_plan(promise)
    assert plan.instances == 4
    tracker = SampledItems(plan)
    regular(2000, [500]).feed([tracker], 1)
    for_one = plan.rate * 2000
    deviation = math.sqrt(4 * for_one * (1 - plan.rate))
    assert abs(tracker.tracked - 4 * for_one) < 4 * deviation
    assert tracker.tracked > 3 * for_one


@pytest.mark.parametrize("delta", [math.exp(-2), 0.01, 0.001])
def test_one_instance_keeps_a_quarter_of_the_slots_of_the_thesis_form(delta: float) -> None:
    """Items tracked times the slots of a sample: less than a quarter of those of all instances together."""
    promise = promised(slots=10**9, alpha=0.3, eps=0.05, delta=delta)
    thesis, single = thesis_plan(promise), one_instance_plan(promise)
    slots = thesis.instances * thesis.rate * thesis.sample_size
    assert single.rate * single.sample_size < 0.25 * slots


def test_a_rate_above_a_half_needs_whole_numbers_of_slots() -> None:
    """(1 - tau)**(2 / tau) is then too small for the probability of G > 2 / tau; e**-2 bounds it even so."""
    rates = np.arange(0.001, 1, 0.001)
    right = (1 - rates) ** np.floor(2 / rates)
    assert (right <= math.exp(-2)).all()
    assert (right > 2 * (1 - rates) ** (2 / rates)).any()


@pytest.mark.parametrize("plan_of", PLANS.values(), ids=PLANS)
def test_nothing_one_and_all_equal(plan_of: Callable[[Promise], Plan]) -> None:
    promise = promised(slots=10, alpha=0.1, eps=0.05)
    for tracker in trackers(AllItems(promise), SampledItems(plan_of(promise))):
        assert len(tracker.persistent()) == 0
        assert tracker.nbytes == 0
        tracker.update(0, np.empty(0, np.uint64), 0)
        tracker.check_invariants()
        tracker.update(0, np.full(9, 2**64 - 1, np.uint64), 3)
        # With eps * n = 0.5 every pair is sampled, and one slot of ten is a tenth.
        assert as_dict(tracker.persistent()) == {2**64 - 1: 1.0}
        assert len(tracker.persistent(13)) == 0


def test_a_rate_of_one_misses_nothing() -> None:
    """As printed, T would be 10.8 of 10 slots here, and no item would ever be reported."""
    promise = promised(slots=10, alpha=1.0, eps=0.05)
    eps1, eps2 = 0.05 / 3, 0.05 / 6
    assert (1 - eps2) * (10 + 1 - eps1 * 10 / 2) > 10 + eps1 * 10 / 2
    tracker = SampledItems(thesis_plan(promise))
    assert (tracker.plan.rate, tracker.plan.eps1) == (1, eps1)
    assert tracker.plan.eps2 == pytest.approx(eps2)
    regular(3, range(10)).feed([tracker], 3)
    regular(3, range(11, 20), first_digest=10).feed([tracker], 3)
    assert as_dict(tracker.persistent(19)) == {}
    tracker = SampledItems(thesis_plan(promise))
    regular(3, range(10)).feed([tracker], 3)
    assert as_dict(tracker.persistent(9)) == {0: 10.0, 1: 10.0, 2: 10.0}


def test_alpha_is_a_decimal_number() -> None:
    """0.07 * 100 is above 7 in binary; 7 slots of 100 are persistent all the same."""
    tracker = AllItems(promised(slots=100, alpha=0.07, eps=0.01))
    regular(1, range(0, 70, 10)).feed([tracker], 1)
    assert as_dict(tracker.persistent(99)) == {0: 7.0}


@pytest.mark.parametrize("delta", [0.9, 0.5, math.exp(-1), 0.2, math.exp(-2), 0.1, 0.01, 1e-3, 1e-9])
@pytest.mark.parametrize(
    ("slots", "alpha", "eps"), [(300, 0.9, 0.8), (1000, 0.3, 0.05), (10, 1, 0.05), (20, 0.5, 0.4)]
)
def test_plans_keep_their_promise(slots: int, alpha: float, eps: float, delta: float) -> None:
    promise = promised(slots, alpha, eps, delta=delta)
    for plan in (thesis_plan(promise), one_instance_plan(promise), one_instance_plan(promise, share=0.7)):
        assert_promise(plan)
        assert_promise(plan.with_exact_sets())
    assert_promise(fewest_items_plan(promise))


def test_more_instances_err_more_with_the_printed_share_of_delta() -> None:
    """Theorem 2 as printed: delta2 = min(1, 2 / ln(1 / delta)) * delta, so that r * delta2 is above delta."""
    for delta, factor in ((math.exp(-2), 2.0), (0.01, 1.3)):
        delta2 = min(1, 2 / math.log(1 / delta)) * delta
        instances = math.ceil(math.log(delta) / math.log(math.exp(-2) + delta2))
        assert instances * delta2 / delta == pytest.approx(factor, abs=0.01)
        corrected = thesis_plan(promised(delta=delta))
        with pytest.raises(AssertionError):
            assert_promise(replace(corrected, instances=instances, delta2=delta2))


def test_a_third_of_eps_for_the_sampling_costs_least() -> None:
    """The tracked items times the slots of a sample grow as 1 / (share * (1 - share)**2)."""
    promise = promised(slots=10**9, alpha=0.3, eps=0.05)
    shares = np.arange(0.05, 0.96, 0.05).tolist()
    for plan_of in (thesis_plan, one_instance_plan):
        costs = [(p.rate * p.sample_size, s) for s in shares for p in [plan_of(promise, share=s)]]
        assert min(costs)[1] == pytest.approx(0.35)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sites": 0}, "got sites = 0; expected an integer from 1"),
        ({"sites": True}, "got sites = True"),
        ({"slots": 2.0}, "got slots = 2.0; expected an integer"),
        ({"alpha": 0.009}, "got alpha = 0.009 of 100 slots; expected 1 / slots <= alpha <= 1"),
        ({"alpha": 1.1}, "got alpha = 1.1"),
        ({"alpha": math.nan}, "got alpha = nan"),
        ({"eps": 0.8}, "got eps = 0.8; expected 0 < eps < alpha = 0.8"),
        ({"eps": 0}, "got eps = 0;"),
        ({"delta": 1}, "got delta = 1; expected 0 < delta < 1"),
        ({"delta": "0.1"}, "got delta = '0.1'"),
        ({"sliding": 1}, "got sliding = 1; expected True or False"),
        ({"seed": -1}, "got seed = -1; expected an integer from 0"),
    ],
)
def test_a_promise_out_of_range_is_refused(wrong: dict[str, float], message: str) -> None:
    right = {"sites": 2, "slots": 100, "alpha": 0.8, "eps": 0.1, "delta": 0.1, "sliding": True}
    with pytest.raises(ValueError, match=re.escape(message)):
        Promise(**{**right, **wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize("share", [0, 1, -0.1, math.nan, True, "a"])
def test_a_share_out_of_range_is_refused(share: float) -> None:
    for plan_of in (thesis_plan, one_instance_plan):
        with pytest.raises(ValueError, match=r"got share = .*; expected 0 < share < 1"):
            plan_of(promised(), share=share)


def test_rows_out_of_range_are_refused_and_change_nothing() -> None:
    keys = np.array([1], np.uint64)
    for sliding in (True, False):
        promise = promised(sites=2, slots=10, sliding=sliding)
        for tracker in trackers(AllItems(promise), SampledItems(one_instance_plan(promise))):
            tracker.update(0, keys, 5)
            before = (tracker.nbytes, tracker.bytes_sent)
            for site, digests, slot, message in [
                (2, keys, 6, "got site = 2; expected an integer from 0 to 1"),
                (-1, keys, 6, "got site = -1"),
                (True, keys, 6, "got site = True"),
                (0, keys, 4, "got slot = 4; expected an integer from 5"),
                (0, keys, 6.0, "got slot = 6.0"),
                (0, keys, 10 if not sliding else 2**62, "got slot = "),
                (0, np.array([1]), 6, "got digests of int64, shape .1,.; expected .* uint64"),
                (0, keys[None], 6, "got digests of uint64, shape .1, 1."),
                (0, [1], 6, "got digests of list"),
            ]:
                with pytest.raises(ValueError, match=message):
                    tracker.update(site, digests, slot)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="got now = 4; expected an integer from 5"):
                tracker.persistent(4)
            assert (tracker.nbytes, tracker.bytes_sent) == before
            tracker.update(1, keys, 5)


@pytest.mark.parametrize("module", [all_items, sampled_items])
def test_the_examples_run(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]
