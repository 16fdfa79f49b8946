"""Reads of the table `events`, and the step plans, which assign its batches to loads."""
