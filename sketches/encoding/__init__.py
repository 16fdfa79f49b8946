"""Storage of sketches: a checksummed envelope, and variable-length integers."""
