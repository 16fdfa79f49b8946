"""The options that a warehouse was created with, their kinds and checks, and the features of its format."""
