"""Probes: what seats believe about the variables of a task, and measures of knowledge, secrecy and norms."""
