"""How rows leave history: selected once, decided by one commit to `events`, applied to runs that have some.

docs/signed_steps.md has the protocol and its crash table.
"""
