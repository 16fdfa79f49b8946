"""The projections of history: measures, measures by group, keys, indexes and companions."""
