"""Sliding-window counters: exponential histograms and waves."""
