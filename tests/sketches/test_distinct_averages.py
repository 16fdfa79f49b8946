"""PCSA and LogLog: the printed exponents, what few keys and few groups do to them, and registers by tick."""

import numpy as np
import pytest

from tests.sketches.distinct_streams import hashes_of
from tidemark.sketches.distinct.mixing import mix, salt_of
from tidemark.sketches.distinct.stochastic_average import (
    FACTORS,
    PLACES,
    AverageKind,
    StochasticAverage,
    cells_of,
    highest_set,
    lowest_unset,
)

KINDS: list[AverageKind] = ["PCSA", "LogLog"]


def ratio(kind: AverageKind, groups: int, keys: int, seed: int) -> float:
    """The estimate for the keys 0 to keys - 1, divided by their number."""
    counter = StochasticAverage(kind=kind, groups=groups, seed=seed)
    counter.update(np.arange(keys, dtype=np.uint64), np.zeros(keys, np.int64))
    return counter.distinct(0) / keys


def as_printed(kind: AverageKind, groups: int, keys: int, seed: int) -> float:
    """The same by the thesis's formula, from the bits by the letter of its text, one by one."""
    bits = np.zeros((groups, PLACES + 2), bool)  # indexed from 1, and the last is never set
    for cell in cells_of(hashes_of(keys, seed), groups).tolist():
        bits[cell // PLACES, cell % PLACES + 1] = True
    if kind == "PCSA":
        exponents = [next(x for x in range(1, PLACES + 2) if not vector[x]) + 1 for vector in bits]
    else:
        exponents = [max(x for x in range(PLACES + 1) if x == 0 or vector[x]) + 1 for vector in bits]
    return float(FACTORS[kind] * groups * 2.0 ** np.mean(exponents)) / keys


@pytest.mark.parametrize(("kind", "times_too_large"), [("PCSA", 4), ("LogLog", 2)])
def test_the_printed_exponent_is_too_large(kind: AverageKind, times_too_large: int) -> None:
    right = [ratio(kind, 256, 20_000, seed) for seed in range(20)]
    printed = [as_printed(kind, 256, 20_000, seed) for seed in range(20)]
    assert np.mean(right) == pytest.approx(1, abs=0.06)
    assert np.mean(printed) == pytest.approx(times_too_large, rel=0.06)
    assert printed == pytest.approx(times_too_large * np.array(right))


def test_as_many_places_as_a_time_has_bits_are_too_few() -> None:
    """Seconds of an hour have 12 bits; of 2**20 keys in 64 groups, the highest place of most is above 12."""
    cells = cells_of(hashes_of(2**20, 3), 64)
    found = {}
    for places in (12, PLACES):
        live = np.zeros((64, PLACES), bool)
        live[cells // PLACES, np.minimum(cells % PLACES, places - 1)] = True
        found[places] = FACTORS["LogLog"] * 64 * 2.0 ** highest_set(live).mean() / 2**20
    assert found[PLACES] == pytest.approx(1, abs=4 * 1.30 / 8)
    assert found[12] <= FACTORS["LogLog"] * 64 * 2.0**12 / 2**20 < 0.1


def test_the_ends_of_bit_vectors() -> None:
    live = np.zeros((4, PLACES), bool)
    live[1, [0, 1, 4]] = True
    live[2] = True
    live[3, 1:] = True
    assert lowest_unset(live).tolist() == [0, 2, PLACES, 0]
    assert highest_set(live).tolist() == [0, 5, PLACES, PLACES]


@pytest.mark.parametrize(
    ("kind", "keys_a_group", "bias"),
    [
        ("PCSA", 1, 0.82),
        ("PCSA", 3, 0.10),
        ("PCSA", 10, 0.00),
        ("LogLog", 1, 0.12),
        ("LogLog", 10, 0.00),
    ],
)
def test_few_keys_a_group_are_too_many(kind: AverageKind, keys_a_group: int, bias: float) -> None:
    found = np.mean([ratio(kind, 256, 256 * keys_a_group, seed) for seed in range(100)]) - 1
    assert found == pytest.approx(bias, abs=0.03)


@pytest.mark.parametrize("kind", KINDS)
def test_few_groups_are_too_many_keys(kind: AverageKind) -> None:
    assert np.mean([ratio(kind, 1, 300, seed) for seed in range(200)]) > 1.3


def test_registers_by_tick_answer_as_bits_with_times_in_a_quarter_of_the_space() -> None:
    """So HyperLogLog pays in windows of whole ticks: it reads the same registers, and errs less."""
    groups, ticks, keys, squares = 64, 60, 6000, np.zeros(2)
    for seed in range(150):
        counter = StochasticAverage(kind="LogLog", groups=groups, seed=seed)
        digests, times = np.arange(keys, dtype=np.uint64), np.arange(keys) * ticks // keys
        counter.update(digests, times)
        registers = np.zeros((ticks, groups), np.uint8)
        cells = cells_of(mix(digests, salt_of(seed)), groups)
        np.maximum.at(registers, (times, cells // PLACES), (cells % PLACES + 1).astype(np.uint8))
        window = registers[15:].max(axis=0).astype(np.float64)
        loglog = FACTORS["LogLog"] * groups * 2.0 ** window.mean()
        assert counter.distinct(since=15) == pytest.approx(loglog, rel=1e-12)
        assert registers.nbytes < counter.nbytes / 4
        hyperloglog = 0.709 * groups**2 / (2.0**-window).sum()
        squares += (np.array([loglog, hyperloglog]) / (keys * 0.75) - 1) ** 2
    errors = np.sqrt(squares / 150)
    assert errors == pytest.approx(np.array([1.30, 1.04]) / np.sqrt(groups), rel=0.2)
    assert errors[1] < 0.9 * errors[0]
