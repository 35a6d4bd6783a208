"""Foreign formats, one module for each family of files."""
