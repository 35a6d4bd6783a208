"""A linter of tasks, templates, scenarios and casts, in files and in the package's own sets."""
