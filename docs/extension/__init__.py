"""What this site adds to Sphinx: the page of the commands, and docstrings that are plain text."""
