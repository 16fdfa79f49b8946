"""The commands: each job parses its arguments, calls the packages and prints."""
