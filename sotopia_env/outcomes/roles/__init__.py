"""Games of hidden roles: their rules as data, and their views and texts; imported on first use."""
