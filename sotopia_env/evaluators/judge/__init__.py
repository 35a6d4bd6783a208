"""Language models as judges: the document that they read, the prompts, and the parsers of their verdicts."""
