"""Scripted speakers: what they state, show and ask about the facts of a task, and what they believe."""
