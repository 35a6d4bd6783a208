"""Content of pages on episodes, outcome spaces and comparisons as plain values: no colours, markup or server."""
