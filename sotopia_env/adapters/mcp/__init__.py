"""A seat for agent products, over the Model Context Protocol."""
