"""The SQL server: who may come in, and which statements are allowed."""
