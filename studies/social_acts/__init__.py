"""The study of social acts: policies beside the closed forms of five acts, in one table."""
