"""The live side: summaries of every batch that is not loaded yet."""
