"""The commands that query: quantiles, keys, figures, steps, alerts, and results that refresh (`watch`)."""
