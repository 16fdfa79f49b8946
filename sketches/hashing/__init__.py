"""Keys as 64-bit digests, and the rows of a Count-Min sketch."""
