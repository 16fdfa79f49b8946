"""The parts of `verify`: checks of runs, checks of the ledger, and tables pinned to versions."""
