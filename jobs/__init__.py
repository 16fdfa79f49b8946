"""Jobs and commands: each parses its arguments, calls the other packages and prints the result."""
