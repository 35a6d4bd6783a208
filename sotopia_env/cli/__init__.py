"""The command ``sotopia``: one module for each group of subcommands."""
