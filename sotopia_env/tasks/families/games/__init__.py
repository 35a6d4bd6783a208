"""Families of games of choices: a file of data each, and one module that draws tasks from any of them."""
