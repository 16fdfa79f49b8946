"""Groups: the rows of one value of a group's columns, found in runs that are sorted by group."""
