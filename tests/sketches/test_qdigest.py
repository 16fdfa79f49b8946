"""Q-digest: ranks and quantiles against a sorted array, and its size."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sketches.arrivals import Ints
from tidemark.sketches import EmptySketch, InvalidInput
from tidemark.sketches.qdigest import QDigest


def check(digest: QDigest, values: Ints, most_nodes: int | None = None) -> None:
    true, n = np.sort(values), len(values)
    assert digest.n == n
    points = np.unique(np.concatenate([true[:: max(1, n // 50)], [0, 2**digest.bits - 1]]))
    lo, hi = digest.rank_le(points)
    ranks = np.searchsorted(true, points, "right")
    assert np.all((lo <= ranks) & (ranks <= hi)), "a rank is outside of its bounds"
    slack = digest.bits * (n // digest.k)
    assert np.all(hi - lo <= slack), "a rank is less certain than promised"
    for phi in (0, 0.1, 0.5, 0.99, 1) if n else ():
        rank, found = max(1, int(np.ceil(phi * n))), digest.quantile(phi)
        before, upto = np.searchsorted(true, found), np.searchsorted(true, found, "right")
        assert before - slack < rank <= upto + slack, "a quantile is too far off"
    assert len(digest) <= (3 * digest.k + digest.bits if most_nodes is None else most_nodes)


def exercise() -> None:
    rng = np.random.default_rng(1)
    parts = [
        rng.normal(30_000, 4_000, 3_000).astype(np.int64),
        rng.integers(0, 2**16, 3_000),
        np.full(3_000, 7),
        np.arange(2**16)[::17],
    ]
    for k in (1, 20, 300):
        digests = [QDigest(16, k), QDigest(16, k)]
        for i, part in enumerate(parts):
            for at in range(0, len(part), 700):
                digests[i % 2].update(part[at : at + 700])
        check(digests[0], np.concatenate(parts[::2]))
        digests[0].merge(digests[1])
        check(digests[0], np.concatenate(parts))


def test_ranks_quantiles_and_size_are_as_promised() -> None:
    exercise()


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, 31), max_size=30), max_size=6), st.integers(1, 40))
def test_few_values_of_a_small_domain(parts: list[list[int]], k: int) -> None:
    digest = QDigest(5, k)
    for part in parts:
        digest.update(np.array(part, np.int64))
    check(digest, np.array([value for part in parts for value in part], np.int64), 63)


def test_what_is_out_of_range_is_refused() -> None:
    for bits, k in ((0, 1), (63, 1), (8, 0)):
        with pytest.raises(InvalidInput):
            QDigest(bits, k)
    digest = QDigest(8, 10)
    with pytest.raises(EmptySketch):
        digest.quantile(0.5)
    for values in ([-1], [256], [0.5]):
        with pytest.raises(InvalidInput):
            digest.update(values)
    for other in (QDigest(9, 10), QDigest(8, 11), digest):
        with pytest.raises(InvalidInput, match="another one"):
            digest.merge(other)
    assert (digest.n, len(digest)) == (0, 0)


COMPRESS: Any = QDigest._compress


def _too_much(self: QDigest) -> None:
    before, self.k = self.k, max(1, self.k // 40)
    COMPRESS(self)
    self.k = before


def _shifted(self: QDigest) -> None:
    COMPRESS(self)
    numbers, counts = self._levels[9]
    self._levels[9] = numbers + 1, counts


MISTAKES: dict[str, Any] = {
    "parents take too much": _too_much,
    "nothing is compressed": lambda _: None,
    "a level counts from 1": _shifted,
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QDigest, "_compress", MISTAKES[mistake])
    with pytest.raises(AssertionError):
        exercise()
