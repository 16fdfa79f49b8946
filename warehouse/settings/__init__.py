"""The options that a warehouse was created with, their checks, and the features of its stored format."""
