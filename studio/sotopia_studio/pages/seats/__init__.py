"""The parts of a seat's page besides the conversation."""
