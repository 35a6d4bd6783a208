"""Data: training rows, their sources, and the scenarios held out for evaluation."""
