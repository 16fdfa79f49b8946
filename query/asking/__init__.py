"""From the arguments of a question to its answers: which rows, where they are found, and in what windows."""
