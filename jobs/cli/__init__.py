"""The command line: arguments, the list of commands, exit codes, progress."""
