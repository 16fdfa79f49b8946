"""Mergeable sketches with certified error bounds: small summaries of large streams.

Vocabulary: `update(array)` adds elements to a sketch, `merge` functions build the sketch of a union, and
queries such as `rank_le`, `rank_lt` and `quantile` return answers with bounds. `to_bytes` and `from_bytes`
store a sketch in a versioned, checksummed format; damaged bytes raise CorruptSketch.

    GK           quantiles within eps * n, deterministic
    RankBounds   a staircase of rank bounds: the common form in which sketches, marks and arrays are combined
    ECM          frequencies of keys in sliding windows; `digest` hashes keys, `merge_ecm` merges sites
    DyadicECM    the same for integer keys, with ranges, heavy hitters and quantiles of keys
    WindowCounts sliding-window counters without keys
    Counting     the configuration of these counters
    Counts       an array of counts with bounds, the result of most queries

The rooms, from the lowest floor to the highest:

    errors, compiled  what is raised; the loops that numba compiles
    inputs, memory_limit, disjoint, hashing, encoding
                      arrays of callers; memory of a new sketch; refused merges of a sketch with itself;
                      hashes of keys; the checksummed bytes around every stored sketch
    bounds, sites     certified bounds of counts and ranks (staircases), and how they add; messages between
                      sites and a coordinator, whatever the carrier does to them
    counters, gk, sampling, topk, skyline, pagerank
                      sliding-window counters; quantiles; samples of keys by hash; the most frequent keys over
                      sites; skylines over sites; ranks of nodes
    distinct, persistence, qdigest
                      for comparison only: distinct keys in windows; persistent items over sites; another
                      sketch of quantiles
    ecm               frequencies in windows. It is the hardest room: merges move arrivals in time, and the
                      bounds must hold after any tree of them (ecm_merge.py, ecm_sizes.py)
    dcm, geometric    counts of sites that a coordinator adds; certain answers about the union of many
                      streams, with few messages (Papapetrou et al., section 6)

The package imports numpy, xxhash and the standard library, and no other package of tidemark. Updates and
merges of frequencies import numba on their first call. Every error is a SketchError.
"""

from tidemark.sketches.bounds.count_bounds import Counts, Estimate
from tidemark.sketches.bounds.rank_bounds import RankBounds, combine
from tidemark.sketches.bounds.target_rank import target_rank
from tidemark.sketches.counters.counting import Counting
from tidemark.sketches.counters.window_counts import WindowCounts
from tidemark.sketches.ecm.dyadic import DyadicECM, HeavyHitters, KeyQuantile, merge_dyadic
from tidemark.sketches.ecm.ecm import ECM, in_time_order
from tidemark.sketches.ecm.ecm_merge import merge_counts, merge_ecm
from tidemark.sketches.ecm.frequency_bounds import FrequencyBounds
from tidemark.sketches.ecm.frequency_bounds import combine as combine_frequencies
from tidemark.sketches.errors import (
    BrokenInvariant,
    CorruptSketch,
    EmptySketch,
    InvalidInput,
    NewerVersion,
    SketchError,
    WrongKind,
)
from tidemark.sketches.gk.gk import GK, merge
from tidemark.sketches.hashing.key_digests import digest, digest_one

__all__ = [
    "ECM",
    "GK",
    "BrokenInvariant",
    "CorruptSketch",
    "Counting",
    "Counts",
    "DyadicECM",
    "EmptySketch",
    "Estimate",
    "FrequencyBounds",
    "HeavyHitters",
    "InvalidInput",
    "KeyQuantile",
    "NewerVersion",
    "RankBounds",
    "SketchError",
    "WindowCounts",
    "WrongKind",
    "combine",
    "combine_frequencies",
    "digest",
    "digest_one",
    "in_time_order",
    "merge",
    "merge_counts",
    "merge_dyadic",
    "merge_ecm",
    "target_rank",
]
