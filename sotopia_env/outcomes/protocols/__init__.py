"""Protocols: the rules that turn moves into an outcome, one module per protocol, and the function that makes them."""
