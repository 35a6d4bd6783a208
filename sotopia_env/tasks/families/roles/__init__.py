"""Families of games with hidden roles: a file of data each, and the module that draws tasks from them."""
