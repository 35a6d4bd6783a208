"""Scripted negotiators: their knowledge, their common frame, concession tactics, and opponents from the literature."""
