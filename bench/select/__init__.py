"""Part `select`: questions about few rows, in the shape of AMPLab's benchmark, with an index and without."""
