"""Scores by transparent rules over the transcript, without a model."""
