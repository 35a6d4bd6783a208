"""Texts of the procedural families: items, contexts, goals, hints and phrases."""
