"""Private columns: secrets, and the tokens that are stored in place of values."""
