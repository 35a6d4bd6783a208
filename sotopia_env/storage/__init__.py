"""Storage: the files that a run leaves."""
