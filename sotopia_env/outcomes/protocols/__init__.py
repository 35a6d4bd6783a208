"""Protocols: the rules by which moves become an outcome, one module for each; and the function that makes them."""
