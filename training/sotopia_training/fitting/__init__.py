"""Fitting: the loop that all supervised stages share, and behaviour cloning."""
