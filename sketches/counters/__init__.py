"""Sliding-window counters: exponential histograms, deterministic and randomised waves."""
