"""The same questions as SQL functions and views, in Spark and in DuckDB."""
