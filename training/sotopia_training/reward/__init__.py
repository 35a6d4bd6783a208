"""SOTOPIA-RL's reward: design, rows, reward model and scorer."""
