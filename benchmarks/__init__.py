"""Speed and memory, each figure as a ratio measured in one run: ``make bench``."""
