"""Studies with people: their settings and files, and the forms that people fill in."""
