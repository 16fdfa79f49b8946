"""Answers as immutable values with certified bounds; their text, HTML and JSON."""
