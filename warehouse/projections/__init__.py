"""What history stores sorted: the values of a measure, and the counts of keys."""
