"""Continuous top-k over sites: against counts of all rows, on hostile channels, beside the printed one."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.papers.printed_topico import PrintedSite, ordered
from tests.sketches.arrivals import Ints, zipf
from tidemark.sketches import CorruptSketch, InvalidInput
from tidemark.sketches.errors import LostState, Undelivered
from tidemark.sketches.sites.channel import Channel, Faults
from tidemark.sketches.sites.network import Network
from tidemark.sketches.topk import site as site_module
from tidemark.sketches.topk.answer import TopkAnswer, top_of
from tidemark.sketches.topk.lists import TopkList
from tidemark.sketches.topk.site import TopkSite


@dataclass
class World:
    """Sites and, for each, every row it observed: what is true."""

    sites: int
    k: int
    window: int
    faults: Faults | None = None
    machines: list[TopkSite] = field(init=False)
    rows: list[list[tuple[int, int]]] = field(init=False)

    def __post_init__(self) -> None:
        self.machines = [TopkSite(i, self.sites, k=self.k, window=self.window) for i in range(self.sites)]
        self.network = Network("topk", dict(enumerate(self.machines)), channel=Channel(self.faults, seed=1))
        self.rows = [[] for _ in range(self.sites)]

    def observe(self, site: int, items: Ints, times: Ints) -> None:
        self.machines[site].observe(items.astype(np.uint64), times)
        self.rows[site] += list(zip(items.tolist(), times.tolist(), strict=True))

    def round(self, now: int, sites: list[int] | None = None) -> None:
        for site in range(self.sites) if sites is None else sites:
            self.network.send(site, self.machines[site].round(now))
        self.network.settle()

    def restart(self, site: int) -> None:
        self.machines[site] = TopkSite(site, self.sites, k=self.k, window=self.window)
        self.network.restart(site, self.machines[site])
        self.network.settle()

    def counts(self, as_of: dict[int, int]) -> Counter[int]:
        """The rows of every item in the windows that end as told, one of each site."""
        assert as_of.keys() == set(range(self.sites))
        return Counter(
            item
            for site, now in as_of.items()
            for item, time in self.rows[site]
            if now - self.window < time <= now
        )

    def check(self) -> None:
        """The bounds and the certain members of every site's answer."""
        for machine in self.machines:
            answer = machine.answer()
            assert_bounds(answer, self.counts(answer.as_of), self.k)

    def assert_true_top(self, now: int) -> None:
        """Every site has the true top k, exact and certain."""
        counts = self.counts(dict.fromkeys(range(self.sites), now))
        for machine in self.machines:
            answer = machine.answer()
            found = list(zip(answer.items.tolist(), answer.counts.lo.tolist(), strict=True))
            assert found == ordered(counts)[: self.k]
            assert answer.counts.hi.tolist() == answer.counts.lo.tolist()
            assert answer.certain.all()


def assert_bounds(answer: TopkAnswer, true: Counter[int], k: int) -> None:
    best = {item for item, _ in ordered(true)[:k]}
    for i, item in enumerate(answer.items.tolist()):
        count = answer.counts[i]
        assert count.lo <= true[item] <= count.hi, "a bound is wrong"
        if answer.certain[i]:
            assert item in best, "what is called certain is not among the top k"


ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12), st.integers(1, 6)), max_size=60)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(ROWS, st.lists(st.integers(0, 3), max_size=4)), min_size=1, max_size=4),
    st.integers(1, 6),
)
def test_bounds_are_certain_and_a_still_state_is_known_after_two_rounds(
    steps: list[tuple[list[tuple[int, int, int]], list[int]]], k: int
) -> None:
    """Sites tell at different times, so that the lists are of different windows."""
    world, now = World(4, k, window=9), 0
    world.round(0)
    for rows, telling in steps:
        for site, item, after in rows:
            world.observe(site, np.array([item]), np.array([now + after]))
        now += 4
        world.round(now, sorted(set(telling)))
        world.check()
    for _ in range(2):
        world.round(now + 6)
    world.assert_true_top(now + 6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "faults", [None, Faults(dropped=0.2, repeated=0.2, reordered=0.3, truncated=0.1, forged=0.2)]
)
def test_drifting_streams_of_eight_sites(faults: Faults | None) -> None:
    """Rows of Zipf's law (0.8) whose frequent items move, with and without harm on the way."""
    world, rng = World(8, 10, window=30, faults=faults), np.random.default_rng(3)
    for now in range(10, 101, 10):
        for site in range(8):
            items = (zipf(rng, 0.8, 60, 300) + now // 2 + site) % 300
            world.observe(site, items, np.sort(rng.integers(now - 9, now + 1, 60)))
        world.round(now)
        world.check()
    world.round(100)
    world.round(100)
    world.assert_true_top(100)
    assert (faults is None) == (not world.network.refused.get("not authentic"))


def test_lists_are_short_where_rows_are_skewed() -> None:
    world, rng = World(8, 5, window=100), np.random.default_rng(4)
    for site in range(8):
        world.observe(site, zipf(rng, 1.2, 3_000, 2_000), np.full(3_000, 50))
    for _ in range(3):
        world.round(50)
    held = sum(len({item for item, _ in rows}) for rows in world.rows)
    assert sum(machine.told[0] for machine in world.machines) == held
    assert sum(machine.told[1] for machine in world.machines) < held / 10
    world.assert_true_top(50)


def test_nothing_few_items_and_ties() -> None:
    world = World(3, 4, window=10)
    with pytest.raises(Undelivered, match="0, 1, 2"):
        world.machines[1].answer()
    world.round(0)
    assert [len(machine.answer()) for machine in world.machines] == [0, 0, 0]
    world.observe(0, np.array([7, 5]), np.array([1, 1]))
    world.observe(2, np.array([5, 7, 9]), np.array([1, 2, 3]))
    for _ in range(2):
        world.round(5)
    world.assert_true_top(5)
    assert world.machines[1].answer().items.tolist() == [5, 7, 9]
    world.round(30)
    world.round(30)
    assert [len(machine.answer()) for machine in world.machines] == [0, 0, 0]


def test_a_restarted_site_is_told_and_answers_come_back_after_a_window() -> None:
    """Its rows are lost: until its window has passed there is an error at every site, and no wrong answer."""
    world, rng = World(3, 3, window=10), np.random.default_rng(5)

    def tell(now: int) -> None:
        for site in range(3):
            world.observe(site, zipf(rng, 1.0, 20, 12), np.full(20, now))
        world.round(now)

    tell(1)
    world.restart(1)
    world.rows[1].clear()
    for now in (3, 6, 12):
        tell(now)
        for machine in world.machines:
            with pytest.raises(LostState, match="1"):
                machine.answer()
    tell(13)
    world.check()
    world.round(13)
    world.assert_true_top(13)


def still_run(site: Callable[[], PrintedSite], rounds: int) -> tuple[float, int]:
    """(share of wrong members, entries told): rows at 8 sites that stand still for `rounds`, then drift."""
    rng, sites = np.random.default_rng(6), [site() for _ in range(8)]
    wrong = members = entries = 0
    for step in range(40):
        drift = step // 10 * 20
        local = [Counter(((zipf(rng, 0.8, 200, 300) + drift) % 300).tolist()) for _ in range(8)]
        for _ in range(rounds):
            told = [one.told(mine) for one, mine in zip(sites, local, strict=True)]
            entries += sum(len(items) for items, _ in told)
            for one in sites:
                for sender, (items, first) in enumerate(told):
                    one.take(sender, items, first)
        true = {item for item, _ in ordered(sum(local, Counter()))[:10]}
        members += 80
        wrong += sum(item not in true for one in sites for item, _ in one.best)
    return wrong / members, entries


@pytest.mark.slow
def test_the_printed_version_is_wrong_in_still_states() -> None:
    """A sum stays when its site stops telling; and echoes of echoes make the lists longer."""
    printed, told = still_run(lambda: PrintedSite(8, 10), 3)
    corrected, told_then = still_run(lambda: PrintedSite(8, 10, echoes_all=False, computes_all=True), 3)
    assert printed > 0.1
    assert corrected == 0
    assert told_then < 0.8 * told


def test_kept_to_l_answers_are_longer_than_k() -> None:
    """Line 13: l is the length of the site's own list, and a variable of the other task."""
    longest = {}
    for keeps_l in (True, False):
        sites = [PrintedSite(4, 3, computes_all=True, keeps_l=keeps_l) for _ in range(4)]
        local = [Counter(zipf(np.random.default_rng(i), 0.5, 200, 20).tolist()) for i in range(4)]
        for _ in range(2):
            told = [one.told(mine) for one, mine in zip(sites, local, strict=True)]
            for one in sites:
                for sender, (items, first) in enumerate(told):
                    one.take(sender, items, first)
        longest[keeps_l] = max(len(one.best) for one in sites)
    assert longest[True] > longest[False] == 3


def test_before_there_are_k_items_the_bound_is_infinite() -> None:
    """Line 15 reads the k-th of fewer. As 0, whole windows are told; as infinity, k, which is enough."""
    local = Counter(zipf(np.random.default_rng(7), 0.5, 400, 60).tolist())
    assert len(PrintedSite(8, 5).told(local)[0]) == len(local) > 50
    assert len(PrintedSite(8, 5, computes_all=True).told(local)[0]) == 5
    assert still_run(lambda: PrintedSite(8, 10, echoes_all=False, computes_all=True), 3)[0] == 0


def test_the_example_of_section_3_1_has_g_where_it_names_l_twice() -> None:
    """Rows x at 1 and 2, y at 3, z at 4; windows of 3. At 4, L has three items, and one of them is first."""
    world = World(1, 1, window=3)
    for time, item in enumerate("xxyz", 1):
        world.observe(0, np.array([ord(item)]), np.array([time]))
    assert world.counts({0: 3}) == {ord("x"): 2, ord("y"): 1}
    at_4 = world.counts({0: 4})
    assert at_4 == dict.fromkeys(map(ord, "xyz"), 1)
    assert {ord("z"): 1} != at_4
    assert max(at_4.items(), key=lambda entry: (entry[1], entry[0])) == (ord("z"), 1)


def test_bytes_of_lists_and_what_is_no_list() -> None:
    one = TopkList(5, 3, True, False, np.array([9, 2**63], np.uint64), np.array([70_000, 0]), 1)
    data = one.to_bytes()
    again = TopkList.of(data)
    assert again.to_bytes() == data
    assert data.hex() == "05000000000000000300000000000000010000000100000001" + (
        "09000000000000000000000000000080" + "f0a20400"
    )
    twice = replace(one, items=np.array([9, 9], np.uint64)).to_bytes()
    for broken in (b"", data[:20], data[:-1], data + b"\0", twice):
        with pytest.raises(CorruptSketch):
            TopkList.of(broken)
    for wrong in ({"site": 3}, {"k": 0}, {"window": 0}):
        with pytest.raises(InvalidInput, match="expected a site"):
            TopkSite(**{"site": 0, "sites": 3, "k": 1, "window": 1, **wrong})
    machine = TopkSite(0, 2, k=1, window=5)
    with pytest.raises(InvalidInput, match="digest"):
        machine.observe(np.array([1.5]), [1])
    machine.round(5)
    with pytest.raises(InvalidInput, match="no earlier"):
        machine.round(4)


LIST_OF, KTH, TOP = TopkSite._list, TopkSite._kth, top_of


def eightfold(site: TopkSite, rest: dict[int, TopkList]) -> int | None:
    """A limit that no item of a single site can reach."""
    least = KTH(site, rest)
    return None if least is None else 8 * least


def all_certain(lists: dict[int, TopkList], k: int) -> TopkAnswer:
    found = TOP(lists, k)
    return replace(found, certain=np.ones(len(found), bool))


MISTAKES: dict[str, tuple[object, str, Any]] = {
    "cut-offs are left out": (TopkSite, "_list", lambda self, now: replace(LIST_OF(self, now), cutoff=0)),
    "a limit that is too high": (TopkSite, "_kth", eightfold),
    "no echoes": (TopkSite, "_echo", lambda *_: []),
    "every member is called certain": (site_module, "top_of", all_certain),
    "echoes are lost on their way": (TopkList, "with_echoes", lambda self, *_: self),
}


def exercise() -> None:
    """Lemma 3 of the paper: the most frequent item of all is the second one of each site.

    The frequent item of the window before keeps the limit high for a round. Then the first site alone tells
    the item that is on top, and the count of the second has to be an echo.
    """
    for others in range(3):
        world = World(2 + others, 1, window=10)
        for site in range(2 + others):
            world.observe(site, np.full(100, 7), np.full(100, 3))
        world.round(3)
        world.observe(0, np.repeat([1, 5], [10, 9]), np.full(19, 15))
        world.observe(1, np.repeat([2, 5], [9, 2]), np.full(11, 15))
        for site in range(2 + others):  # so many others that a list of all is longer than echoes
            world.observe(site, np.arange(30) + 100 * (site + 1), np.full(30, 15))
        for now in (15, 16):
            world.round(now)
            world.check()
        world.assert_true_top(16)


def test_the_exercise_passes_without_a_mistake() -> None:
    exercise()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MISTAKES[mistake])
    with pytest.raises(AssertionError):
        exercise()
