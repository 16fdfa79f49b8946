"""Answers as values: what was proved, how it is shown, and its JSON."""
