"""SOTOPIA-π as one pipeline."""
