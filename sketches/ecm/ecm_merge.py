"""Order-preserving merge: from the sketches of many sites one sketch of all their arrivals, in order of time.

Exponential histograms and waves. A bucket is read as a log: half of its arrivals came when it began, the
other half when it ended, the last one certainly then. The halves of all sites, in order of time, are the
arrivals of a new counter. Counter by counter, the cells of a sketch.

Proof of the error. Let x be the arrivals at t or later, x' those of the streams that the inputs have seen
as they tell it (x' = x for one that was never merged), x'' those of the halves. Only a bucket that t cuts
is on both sides. Of its true y, 1 <= y <= size, ceil(size / 2) are counted, hence |x'' - x'| <= size / 2,
and by invariant 2 of buckets.py that is at most eps * (1 + later) <= eps * x'. CellIndices, buckets and sites
add, and

    |x'' - x| <= eps * x' + |x' - x| <= (eps * (1 + skew) + skew) * x.

So the merged counter has the skew of its worst input, max of eps_i + skew_i + eps_i * skew_i, and with eps'
of its own errs by skew + eps' + skew * eps'. For one merge that is eps + eps' + eps * eps', theorem 4 of
the paper; for h merges above each other at one eps it is (1 + eps)**(h + 1) - 1. The paper adds h * eps for
the levels, which leaves out that the second merge's eps is one of x', not of x.

A bucket whose beginning has expired is told from the window's edge on: that side is never asked for.

Randomised waves join their samples, and nothing is added to their error.

On the clock "count" there is no merge: the sketches do not tell how their arrivals interleave (section 5.1,
figure 2).

Source: Papapetrou et al., VLDB Journal 2015, section 5 and theorem 4.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tidemark.sketches.counters import randomized_wave
from tidemark.sketches.counters.buckets import Buckets, Ints
from tidemark.sketches.counters.counting import FARTHEST, CounterState, Counting
from tidemark.sketches.counters.randomized_wave import SampledWaves
from tidemark.sketches.counters.window_counts import WindowCounts
from tidemark.sketches.disjoint import require_disjoint
from tidemark.sketches.ecm.ecm import ECM
from tidemark.sketches.ecm.frequency_bounds import require_same_hashes
from tidemark.sketches.errors import InvalidInput


def merge_ecm(sketches: Sequence[ECM], *, eps_sw: float | None = None) -> ECM:
    """A new sketch of the union of disjoint streams, which stay as they are.

    eps_sw: the eps of its counters, the largest of the inputs' without it. Its `point_eps` is what is kept:
    a merge of sketches of one eps keeps about 2 * eps, h merges one above the other (h + 1) * eps, so build
    what will be merged with an eps that much smaller (`eps_of_merge_inputs` in ecm_sizes.py has it exactly).
    RW lose nothing. InvalidInput for no sketches, for unlike row hashes, kinds, windows or clocks, for the
    clock "count", for one sketch twice, for 2**62 arrivals in all, and for RW of one site.

    Cost: that of what the inputs hold, however many cells they have.
    """
    if not sketches:
        raise InvalidInput("got no sketches to merge; expected at least one; an empty ECM will do")
    require_same_hashes([s.hashes for s in sketches])
    counts = merge_counts([s.counts for s in sketches], eps=eps_sw)
    eps, delta = max(s.eps for s in sketches), max(s.delta for s in sketches)
    return ECM.of(sketches[0].hashes, counts.counting, eps=eps, delta=delta, counts=counts)


def merge_counts(parts: Sequence[WindowCounts], *, eps: float | None = None) -> WindowCounts:
    """The counters of the union of disjoint streams, cell by cell; see `merge_ecm`."""
    counting = _one_counting(parts, eps)
    held = [part for part in parts if part.n]
    if not held:
        return WindowCounts(counting, parts[0].cells)
    samples = [part.kept for part in held if isinstance(part.kept, SampledWaves)]
    kept = randomized_wave.join(samples) if samples else _merged_buckets(held, counting)
    return WindowCounts.of(
        counting,
        parts[0].cells,
        kept,
        n=sum(part.n for part in held),
        first=min(part.first for part in held if part.first is not None),
        now=max(part.now for part in held if part.now is not None),
        skew=0.0 if samples else max(part.error for part in held) * (1 + 2**-50),
    )


def halves(part: WindowCounts) -> tuple[Ints, Ints, Ints]:
    """The arrivals that the buckets of a part tell of: cells, times and counts, in no order."""
    kept = part.kept
    if not isinstance(kept, Buckets) or part.first is None:
        raise InvalidInput("got counters without buckets; expected EH or DW that hold arrivals")
    cells = np.repeat(kept.cells, np.diff(kept.starts))
    # Nothing of the oldest bucket lies before the first arrival, and what expired is not asked for.
    begins = kept.begins(part.first if part.horizon is None else part.horizon)
    early = kept.sizes // 2
    some = early > 0
    return (
        np.concatenate([cells[some], cells]),
        np.concatenate([begins[some], kept.ends]),
        np.concatenate([early[some], (kept.sizes - early)]),
    )


def _merged_buckets(parts: Sequence[WindowCounts], counting: Counting) -> CounterState:
    told = [halves(part) for part in parts]
    return counting.buckets_of(*(np.concatenate(arrays) for arrays in zip(*told, strict=True)))


def _one_counting(parts: Sequence[WindowCounts], eps: float | None) -> Counting:
    """How the merged counters count; InvalidInput unless the parts go together."""
    own = [part.counting for part in parts]
    first = own[0]
    if first.clock == "count":
        raise InvalidInput(
            "got counters of the last arrivals; expected a window of time: they do not tell how their "
            "arrivals interleave; add their answers instead"
        )
    require_disjoint(parts)
    sites = [c.site for c in own]
    if first.kind == "RW" and (len(set(sites)) < len(sites) or eps not in (None, first.eps)):
        raise InvalidInput(
            f"got randomised waves of the sites {sites}, to be merged to eps = {eps}; expected sites that "
            "differ, because equal ones draw the same lots, and the inputs' own eps"
        )
    loosest = max(c.eps for c in own)
    merged = replace(first, eps=loosest if eps is None else eps, site=min(sites))
    for counting in own:
        same_eps = merged.eps if first.kind != "RW" else counting.eps
        if replace(counting, eps=same_eps, site=merged.site) != merged:
            raise InvalidInput(
                f"got counters of {first} and {counting}; expected one kind, window and clock; "
                "build the sketches alike"
            )
    if len({part.cells for part in parts}) > 1:
        raise InvalidInput("got counters of different numbers of cells; expected as many in each")
    if sum(part.n for part in parts) >= FARTHEST:
        raise InvalidInput(
            f"got {sum(part.n for part in parts)} arrivals in all; expected fewer than 2**62; merge fewer"
        )
    return merged
