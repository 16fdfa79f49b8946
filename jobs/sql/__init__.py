"""The SQL server: authentication of clients, and the rules for their statements."""
