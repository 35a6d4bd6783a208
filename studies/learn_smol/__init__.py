"""A small real model: base, clone, GRPO, and a relabelled clone; decided over training seeds and tasks."""
