"""Policies that are made of other policies."""
