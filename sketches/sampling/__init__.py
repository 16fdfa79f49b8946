"""Samples of keys by hash: the same keys in every part of a stream, so samples of parts combine."""

from tidemark.sketches.sampling.key_sample import ALL, KeySample, SampleBuilder, SampleSize, merge_samples
from tidemark.sketches.sampling.trials import trials_interval

__all__ = ["ALL", "KeySample", "SampleBuilder", "SampleSize", "merge_samples", "trials_interval"]
