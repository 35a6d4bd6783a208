"""The parts of an observation: the briefing, the turns and the table that a seat may know, as lines and as messages."""
