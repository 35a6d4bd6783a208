"""A small real model: base, clone, self-reinforcement in two rounds, GRPO; three seeds, over which it is decided."""
