"""Scores by transparent rules over the words of an episode, without a model."""
