"""Order-preserving merge: one sketch of the arrivals of many sites, in order of time.

Exponential histograms and deterministic waves. A bucket is replayed as arrivals: half of them when the
bucket began, the other half, with the last one, when it ended. The halves of all sites, in order of time, are
the arrivals of a new counter. A sketch is merged cell by cell.

Example. A bucket of 5 arrivals that began at 10 and ended at 18 is replayed as 2 arrivals at 10 and 3 at 18.

Proof of the error. Let x be the number of true arrivals at t or later; x' the number of those in the streams
that the inputs represent (x' = x for an input that was never merged); x'' the number of replayed arrivals.
Only a bucket with arrivals on both sides of t makes a difference. Of its y true arrivals at t or later,
1 <= y <= size, ceil(size / 2) are counted, hence |x'' - x'| <= size / 2, and by invariant 2 of buckets.py
that is at most eps * (1 + later) <= eps * x'. Sums over buckets, cells and sites add, and

    |x'' - x| <= eps * x' + |x' - x| <= (eps * (1 + skew) + skew) * x.

So the merged counter has the skew of its worst input, max of eps_i + skew_i + eps_i * skew_i, and with eps'
of its own has the error skew + eps' + skew * eps'. For one merge that is eps + eps' + eps * eps', theorem 4
of the paper; for h levels of merges at one eps it is (1 + eps)**(h + 1) - 1. The paper adds h * eps for the
levels; that omits that the eps of the second merge is relative to x', not to x.

A bucket whose beginning has expired is replayed as if it began at the edge of the window. Queries cannot ask
for expired times, so this changes no answer.

Randomised waves merge their samples, which adds no error.

Sketches on the clock "count" cannot be merged, because they do not record how their arrivals interleave
(section 5.1, figure 2).

Cost: O(b log b) for the b buckets of all inputs together, independent of the number of cells.

Source: Papapetrou et al., VLDB Journal 2015, section 5 and theorem 4.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tidemark.sketches.counters import randomized_wave
from tidemark.sketches.counters.buckets import Buckets, Ints
from tidemark.sketches.counters.counting import COUNT_LIMIT, PROVEN_KINDS, CounterState, Counting
from tidemark.sketches.counters.randomized_wave import SampledWaves
from tidemark.sketches.counters.window_counts import WindowCounts
from tidemark.sketches.disjoint import require_disjoint
from tidemark.sketches.ecm.ecm import ECM
from tidemark.sketches.ecm.frequency_bounds import require_same_hashes
from tidemark.sketches.errors import InvalidInput


def merge_ecm(sketches: Sequence[ECM]) -> ECM:
    """A new sketch of the union of disjoint streams; the inputs do not change.

    sketches: at least one, all with the same row hashes, kind, window and clock.

    The `point_eps` of the result states its error. For inputs of one eps it is about 2 * eps after one merge
    and about (h + 1) * eps after h levels of merges, so build sketches that will be merged with a smaller
    eps; `eps_of_merge_inputs` in ecm_sizes.py computes it exactly. Merging RW adds no error.

    Raises InvalidInput for no sketches, for different row hashes, kinds, windows or clocks, for the clock
    "count", for the same sketch twice, for 2**62 arrivals or more in total, and for RW of equal sites.

    O(b log b) time for the b buckets of all inputs together, independent of the number of cells.
    """
    if not sketches:
        raise InvalidInput("got no sketches to merge; expected at least one; pass an empty ECM")
    require_same_hashes([s.hashes for s in sketches])
    counts = merge_counts([s.counts for s in sketches])
    eps, delta = max(s.eps for s in sketches), max(s.delta for s in sketches)
    return ECM.of(sketches[0].hashes, counts.counting, eps=eps, delta=delta, counts=counts)


def merge_counts(parts: Sequence[WindowCounts], *, eps: float | None = None) -> WindowCounts:
    """The counters of the union of disjoint streams, cell by cell.

    parts: at least one, all with the same number of cells, kind, window and clock.
    eps: of the counters of the result; None means the largest of the inputs'.

    Errors, costs and exceptions as for `merge_ecm`.
    """
    counting = _merged_counting(parts, eps)
    nonempty = [part for part in parts if part.n]
    if not nonempty:
        return WindowCounts(counting, parts[0].cells)
    samples = [part.kept for part in nonempty if isinstance(part.kept, SampledWaves)]
    kept = randomized_wave.merge_samples(samples) if samples else _merged_buckets(nonempty, counting)
    return WindowCounts.of(
        counting,
        parts[0].cells,
        kept,
        n=sum(part.n for part in nonempty),
        first=min(part.first for part in nonempty if part.first is not None),
        now=max(part.now for part in nonempty if part.now is not None),
        skew=0.0 if samples else max(part.error for part in nonempty) * (1 + 2**-50),
    )


def halves(part: WindowCounts) -> tuple[Ints, Ints, Ints]:
    """(cells, times, counts): the buckets of a part replayed as arrivals, in no particular order. O(b)."""
    kept = part.kept
    if not isinstance(kept, Buckets) or part.first is None:
        raise InvalidInput("got counters without buckets; expected EH or DW that hold arrivals")
    cells = np.repeat(kept.cells, np.diff(kept.starts))
    # The oldest bucket begins at the first arrival or later, and queries cannot ask for expired times.
    begins = kept.begin_times(part.first if part.horizon is None else part.horizon)
    early_counts = kept.sizes // 2
    has_early = early_counts > 0
    return (
        np.concatenate([cells[has_early], cells]),
        np.concatenate([begins[has_early], kept.ends]),
        np.concatenate([early_counts[has_early], (kept.sizes - early_counts)]),
    )


def _merged_buckets(parts: Sequence[WindowCounts], counting: Counting) -> CounterState:
    arrivals = [halves(part) for part in parts]
    return counting.buckets_of(*(np.concatenate(arrays) for arrays in zip(*arrivals, strict=True)))


def _merged_counting(parts: Sequence[WindowCounts], eps: float | None) -> Counting:
    """The configuration of the merged counters; InvalidInput unless the parts can be merged."""
    countings = [part.counting for part in parts]
    first = countings[0]
    if first.clock == "count":
        raise InvalidInput(
            "got counters on the clock 'count'; expected the clock 'time', because counters on the clock "
            "'count' do not record how their arrivals interleave; add their answers instead"
        )
    if first.kind not in PROVEN_KINDS:
        raise InvalidInput(
            f"got counters of the kind {first.kind}; expected one of {PROVEN_KINDS} to merge; "
            "add the answers of the others instead, with combine_frequencies"
        )
    require_disjoint(parts)
    sites = [counting.site for counting in countings]
    if first.kind == "RW" and (len(set(sites)) < len(sites) or eps not in (None, first.eps)):
        raise InvalidInput(
            f"got randomised waves of the sites {sites}, to be merged to eps = {eps}; expected sites that "
            "differ, because equal sites draw equal levels, and the inputs' eps or None"
        )
    largest_eps = max(counting.eps for counting in countings)
    merged = replace(first, eps=largest_eps if eps is None else eps, site=min(sites))
    for counting in countings:
        same_eps = merged.eps if first.kind != "RW" else counting.eps
        if replace(counting, eps=same_eps, site=merged.site) != merged:
            raise InvalidInput(
                f"got counters of {first} and {counting}; expected one kind, window and clock; "
                "build the sketches with the same ones"
            )
    if len({part.cells for part in parts}) > 1:
        raise InvalidInput("got counters of different numbers of cells; expected the same number in each")
    if sum(part.n for part in parts) >= COUNT_LIMIT:
        raise InvalidInput(
            f"got {sum(part.n for part in parts)} arrivals in total; expected fewer than 2**62; merge fewer"
        )
    return merged
