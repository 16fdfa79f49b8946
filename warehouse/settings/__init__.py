"""The options of a warehouse, their kinds, checks and changes, and the features of its format."""
