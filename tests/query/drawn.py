"""Strategies: the worlds and the windows that the properties are tried on."""

from __future__ import annotations

import math
from random import Random

from hypothesis import strategies as st

from tests.query.worlds import World

BIG = [2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1, 2**63 - 2, -(2**63), -(2**63) + 1, 0]

FLOATS = {
    "spread": st.floats(-1e6, 1e6, allow_nan=False),
    "duplicates": st.sampled_from([0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 2.0, 3.0, 5.0]),
    "constant": st.just(7.0),
    "infinities": st.sampled_from([math.inf, -math.inf, 0.0, -0.0, 1.5, 5e-324]),
    "with NaN": st.sampled_from([math.nan, 1.0, 2.0, -3.5]),
    "with NULL": st.sampled_from([None, 1.0, 2.0, -3.5]),
    "nothing but NaN": st.just(math.nan),
}
INTEGERS = {
    "small": st.integers(-4, 4),
    "above 2**53": st.sampled_from(BIG),
    "any": st.integers(-(2**63), 2**63 - 1),
    "with NULL": st.sampled_from([None, 1, 2, 3]),
}
PHIS = st.one_of(st.sampled_from([0, 1, 0.5, 0.07, 0.01, 0.99]), st.floats(0, 1))
MODES = st.sampled_from(["quick", "accurate", "exact"])


@st.composite
def worlds(draw: st.DrawFn, *, live: bool = True) -> World:
    """A world of one kind of values. Ticks are skewed; in some worlds values rise with them."""
    kind = draw(st.sampled_from(["double", "long"]))
    values = draw(st.sampled_from(list((FLOATS if kind == "double" else INTEGERS).values())))
    ticks = draw(st.sampled_from([1, 3, 8]))
    rising = draw(st.booleans()) if kind == "double" else False
    jitter = draw(st.booleans()) if kind == "double" else False

    def rows(most: int) -> tuple[tuple[object, int], ...]:
        pool = draw(st.lists(values, min_size=1, max_size=12))
        random = Random(draw(st.integers(0, 2**32)))
        found = []
        for _ in range(draw(st.sampled_from([0, 1, 2, most // 8, most]))):
            tick = min(int(random.expovariate(0.7)), ticks - 1)
            value = random.choice(pool)
            if value is not None and kind == "double":
                value += 1e7 * tick * rising + random.random() * jitter
            found.append((value, tick))
        return tuple(found)

    return World(
        runs=tuple(rows(250) for _ in range(draw(st.integers(0, 5)))),
        live=tuple(rows(120) for _ in range(draw(st.integers(0, 3)))) if live else (),
        type=kind,
        eps=draw(st.sampled_from([0.3, 0.1, 0.02, 0.001])),
        grain=draw(st.sampled_from([1, 3, 16, 64])),
        span=draw(st.sampled_from([1, 2, 5, 50])),
        group_rows=draw(st.sampled_from([1, 4, 16, 64])),
        file_rows=draw(st.sampled_from([7, 50, 1000])),
        rows_a_run=draw(st.sampled_from([0, 5, 1000])),
        rows_a_round=draw(st.sampled_from([20, 2**22])),
        live_fits=draw(st.booleans()),
    )


def windows() -> st.SearchStrategy[tuple[int, int] | None]:
    """All rows, or ticks start..stop of 0..12."""
    some = st.tuples(st.sampled_from([0, 1, 1, 2, 5]), st.sampled_from([1, 1, 2, 8]))
    return st.one_of(st.none(), some.map(lambda pair: (pair[0], pair[0] + pair[1])))
