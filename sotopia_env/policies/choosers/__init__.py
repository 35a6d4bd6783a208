"""Scripts for games of choices."""
