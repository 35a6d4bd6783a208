"""Which seats are compared, over which units, and the seats of episodes that failed."""
