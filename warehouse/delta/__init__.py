"""Delta tables in one folder: read without a JVM, committed by compare-and-swap, vacuumed."""
