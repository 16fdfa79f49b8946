"""Mergeable sketches with certified bounds: the memory-sized side of tidemark.

Vocabulary: a sketch takes `update(array)`, sketches `merge`, and answers come with bounds: `rank_le`,
`rank_lt`, `quantile`. `to_bytes` and `from_bytes` store a sketch in a versioned, checksummed form; damaged
bytes raise.

    GK           quantiles within eps * n, deterministic
    RankBounds   a staircase of certified ranks, in which sketches, marks and exact arrays are combined

The package imports numpy and the standard library and nothing of tidemark. Every error is a SketchError.
"""

from sketches.errors import (
    BrokenInvariant,
    CorruptSketch,
    EmptySketch,
    InvalidInput,
    NewerVersion,
    SketchError,
    WrongKind,
)
from sketches.gk import GK, merge
from sketches.rank_bounds import RankBounds, combine
from sketches.target_rank import target_rank

__all__ = [
    "GK",
    "BrokenInvariant",
    "CorruptSketch",
    "EmptySketch",
    "InvalidInput",
    "NewerVersion",
    "RankBounds",
    "SketchError",
    "WrongKind",
    "combine",
    "merge",
    "target_rank",
]
