"""Quantiles, ranks and histograms: bounds from memory, then reads of the blocks that are needed."""
