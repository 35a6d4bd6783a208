"""Data: rows for training, their sources, and what is held out."""
