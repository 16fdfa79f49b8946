"""The parts of `verify`: checks of runs, of the ledger, and of tables pinned to versions."""
