"""Figures of answers, with their bounds."""
