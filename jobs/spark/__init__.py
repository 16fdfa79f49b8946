"""One way to a Spark session, its Java and its jars."""
