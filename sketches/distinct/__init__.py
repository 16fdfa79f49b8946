"""Distinct keys in sliding windows: the sketches of a thesis, corrected, for comparison.

Model. Arrivals are pairs of a digest and a time; times never decrease. D is the number of different digests
that arrived at `since` or later. Any `since` may be asked. A window of T time units that ends now begins at
since = now - T + 1. If the time of an arrival is its number in the stream, windows count arrivals.

    StochasticAverage    PCSA and LogLog: the newest time of each bit of k bit vectors
    LinearCounting       LC: the newest time of each of n cells
    ListedCounting       LC2: LC that also lists its cells by time, so that a query does not read all cells
    BJKST                the theta smallest hashes of every window
    RandomizedWave       RW: the last c keys at sampling rates 1, 1/2, 1/4 ...; nested or disjoint lists
    MedianOf, SplitSum   several sketches as one: the median of their answers, or the sum over shares

They share one interface, `DistinctCounter`. No sketch can be stored or merged, and nothing else in tidemark
uses them: benchmarks compare them at equal size.

Source: Singh, "Techniques for online analysis of large distributed data", Iowa State University, 2015,
chapter 2. Each module lists where the thesis is wrong and what is right; tests prove each by a number. What
belongs to no single module:

  * Its relative error is printed as |d - d'| / n, with n undefined. It is |d - d'| / d, for d distinct keys.
  * Its table of data has 4.31 million distinct bigrams, of which 35 million in one window. One must be wrong.
  * Its conclusion calls PCSA the fastest where updates per query are few. Its text and Figure 2.11 show the
    opposite: PCSA is fastest where they are many, because a query reads all cells.
"""

from tidemark.sketches.distinct.bjkst import BJKST
from tidemark.sketches.distinct.boosting import MedianOf, SplitSum
from tidemark.sketches.distinct.distinct_counter import DistinctCounter
from tidemark.sketches.distinct.linear_counting import LinearCounting
from tidemark.sketches.distinct.listed_counting import ListedCounting
from tidemark.sketches.distinct.randomized_wave import RandomizedWave
from tidemark.sketches.distinct.stochastic_average import StochasticAverage

__all__ = [
    "BJKST",
    "DistinctCounter",
    "LinearCounting",
    "ListedCounting",
    "MedianOf",
    "RandomizedWave",
    "SplitSum",
    "StochasticAverage",
]
