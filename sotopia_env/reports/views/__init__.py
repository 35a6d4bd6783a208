"""What a page shows of an episode or of an outcome space, as plain values: without colours, markup or a server."""
