"""Building, trying and changing studies, and their files."""
