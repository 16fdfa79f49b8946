"""Reading the rows of a batch from files, with Spark and without."""
