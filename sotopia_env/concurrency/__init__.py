"""Execution of long work: a pool of workers, early stopping, and a progress bar."""
