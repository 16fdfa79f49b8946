"""Reading a batch from files, with Spark and without."""
