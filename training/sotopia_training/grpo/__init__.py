"""GRPO: on single answers with a reward model, and on whole episodes."""
