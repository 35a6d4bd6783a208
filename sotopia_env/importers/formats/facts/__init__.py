"""Formats of tasks with facts: what people know, and games of roles."""
