"""Families of procedural tasks, one module each; a module is imported on first use of its family."""
