"""What a warehouse was created with: options, their checks, and named features of the stored format."""
