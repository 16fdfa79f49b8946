"""The engine of history: what a projection is, how runs are laid out, merged, marked, read and committed."""
