"""The way of a request to its handler: limits of connections, sizes and rates, and checks of its origin."""
