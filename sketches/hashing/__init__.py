"""64-bit digests of keys, and the row hashes of a Count-Min sketch."""
