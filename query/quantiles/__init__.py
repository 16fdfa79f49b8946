"""Quantiles, ranks and histograms: bounds from memory, then the blocks that must be read."""
