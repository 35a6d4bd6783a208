"""Transports: one request to a model's server, and its answer."""
