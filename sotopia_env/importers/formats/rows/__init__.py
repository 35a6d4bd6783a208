"""Importers of training rows, one module for each family of files."""
