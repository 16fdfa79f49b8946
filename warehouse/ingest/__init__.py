"""Writes batches of rows into the table `events`: each once, with the types of the warehouse."""
