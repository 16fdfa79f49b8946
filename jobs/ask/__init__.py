"""The commands that query: quantiles, keys, figures, and results that are refreshed."""
