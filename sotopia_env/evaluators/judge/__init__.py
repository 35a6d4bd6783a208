"""Language models as judges: the document they read, the questions, the verdicts."""
