"""Figures of answers with their certified bounds."""
