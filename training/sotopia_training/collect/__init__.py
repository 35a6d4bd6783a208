"""Collection: tasks, episodes and filters of a round of SOTOPIA-π."""
