"""Transports, each of which sends requests to a model's server and reads the answers."""
