"""ECM-sketches: frequencies of keys in sliding windows."""
