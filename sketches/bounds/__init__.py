"""Certified lower and upper bounds of counts and ranks, and how they add over disjoint streams."""
