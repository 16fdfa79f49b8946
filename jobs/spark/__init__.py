"""The Spark session of the jobs, with its Java and its jars."""
