"""Studies: scripts that run the stages and files of users to answer a question."""
