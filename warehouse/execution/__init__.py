"""Where tasks run and what rows they are given: Spark, or this process."""
