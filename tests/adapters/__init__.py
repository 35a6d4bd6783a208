"""Tests against the libraries that adapters serve; ``make adapters`` runs each folder beside its library."""
