"""Evaluation of trained policies in the papers' settings."""
