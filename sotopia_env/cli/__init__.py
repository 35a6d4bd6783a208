"""The ``sotopia`` command line, with one module for each group of subcommands."""
