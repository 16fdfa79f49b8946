"""Where tasks run, in Spark or in this process, and how the caller's rows are read."""
