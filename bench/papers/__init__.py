"""Figures of papers, beside ours; docs/papers.md says what came out."""
