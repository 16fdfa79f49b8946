"""What is certain of a count or a rank, and how bounds add."""
