"""A real small model learns from its own play: base, clone, self-reinforcement in two rounds, GRPO; three seeds."""
