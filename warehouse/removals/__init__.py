"""How rows leave history: selected once, decided by one commit to `events`, taken out of the runs.

docs/signed_steps.md has the protocol and its crash table.
"""
