"""Studies with people who play, annotate or validate; all kinds share participants, assignments and forms."""
