"""The commands that ask: quantiles, keys, figures, and answers that are redrawn."""
