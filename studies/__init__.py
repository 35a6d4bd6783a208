"""Studies: the stages and files that users run, in an order that answers a question."""
