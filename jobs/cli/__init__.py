"""The command line: options, the table of commands, exit codes, signals, progress, completion."""
